// Package diagnose explains why a stage failed. It runs the diagnoses of the closed gates and of the cluster
// around them, groups findings with the same cause, and keeps the evidence in the run's folder. It changes
// nothing, neither the stage's error nor its exit code. An interrupt ends a diagnosis at once.
package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/secret"
)

// Subject is a failed stage, of the configuration or of the record.
type Subject struct {
	Layer, Name string
	Stage       *config.Stage // nil for one that is only recorded
}

// Explain adds the likely causes to a stage's error. An error that has nothing to diagnose, such as a
// refusal of a preflight, stays as it is.
func Explain(ctx context.Context, r *run.Run, s Subject, err error) error {
	failed, is := errors.AsType[*run.StageError](err)
	if !is || ctx.Err() != nil {
		return err
	}
	findings := Look(ctx, r, s, err)
	if len(findings) == 0 || ctx.Err() != nil {
		return err // no diagnosis, or the user has interrupted the run
	}
	failed.Findings, failed.Folder = findings, report(r, s, findings)
	return err
}

// Look diagnoses a stage's error.
func Look(ctx context.Context, r *run.Run, s Subject, err error) []*run.Finding {
	bounded, stop := context.WithTimeout(ctx, waiting.DiagnosisTime)
	defer stop()
	findings := findings(bounded, r, s, err)
	run.Each(findings, func(f *run.Finding) bool {
		if f.Inspect != nil {
			f.Found = waiting.Bounded(bounded, f.Inspect)
		}
		return true
	})
	for _, f := range findings {
		f.Report.Cause, f.Report.Next = f.Found.Cause, nextCommand(r, f.Found)
		if fix := healing(r, f.Found.Release); fix != "" {
			f.Report.Next = fix
		}
	}
	checkLostEtcd(r, s, findings)
	return Group(slices.DeleteFunc(findings, (*run.Finding).Empty))
}

// report writes the evidence into a folder, which it returns, and reports the findings.
func report(r *run.Run, s Subject, findings []*run.Finding) (folder string) {
	files := map[string][]byte{}
	folder = r.Files.DiagnosisPath(s.Name)
	var summary strings.Builder
	for _, f := range findings {
		f.Report.Folder = folder
		for name, data := range f.Found.Files {
			files[name] = []byte(foreign.Text(secret.HideLikely(r.Cluster.Masker.Hide(string(data)))))
		}
		d := f.Report.Masked(r.Cluster.Masker.Hide)
		fmt.Fprintf(&summary, "waited for  %s\nseen        %s\nsince       %s\n"+
			"likely      %s\nnext        %s\n\n", d.Waited, d.Seen, d.Since.UTC().Format(time.RFC3339),
			cmp.Or(d.Cause, "unknown"), cmp.Or(d.Next, "-"))
	}
	files["summary.txt"] = []byte(foreign.Text(summary.String()))
	if keepErr := r.Files.KeepDiagnosis(s.Name, files); keepErr != nil {
		r.Notice(fmt.Sprintf("%s: not all of the diagnosis could be written: %v", s.Name, keepErr))
	}
	for _, f := range findings {
		r.Emit(event.Event{Kind: event.Diagnosed, Layer: s.Layer, Stage: s.Name, Gate: f.Gate,
			Diagnosis: &f.Report})
	}
	return folder
}

// nextCommand completes the command that shows more, so that it works when it is pasted.
func nextCommand(r *run.Run, found gate.Diagnosis) string {
	switch {
	case strings.HasPrefix(found.Look, "kubectl "), strings.HasPrefix(found.Look, "helm "):
		return "KUBECONFIG=" + cluster.Word(r.Cluster.Dir.Kubeconfig()) + " " + found.Look
	case strings.HasPrefix(found.Look, "talosctl "):
		return "TALOSCONFIG=" + cluster.Word(r.Cluster.Dir.Talosconfig()) + " " + found.Look
	case strings.HasPrefix(found.Look, "castle "):
		return r.Cluster.Command(strings.TrimPrefix(found.Look, "castle "))
	}
	return found.Look
}

// checkLostEtcd recognises a cluster that no create can complete. etcd runs on no control plane, but
// Terraform's state has its bootstrap, so Terraform never repeats it. Every other gate of the stage is
// closed because of that.
func checkLostEtcd(r *run.Run, s Subject, findings []*run.Finding) {
	// Where Talos answers for its services, the diagnosis is better evidence than the check.
	lost := slices.ContainsFunc(findings, func(f *run.Finding) bool {
		return f.Kind == gate.EtcdDown || f.Found.Kind == gate.NeverBootstrapped
	})
	if !lost || !bootstrappedBefore(r, s) {
		return
	}
	for _, f := range findings {
		f.Found.About, f.Found.Kind = "etcd", gate.EtcdDown
		f.Report.Cause = "etcd was bootstrapped, by Terraform's state, and runs on no control plane: " +
			"all of them were lost or reset since, and nothing is left to join"
		f.Report.Next = fmt.Sprintf("%s && %s", r.Cluster.Command("destroy"), r.Cluster.Command("create"))
	}
}

// healing returns the command that restores the objects of a Helm release, if a stage installed it.
func healing(r *run.Run, release string) string {
	namespace, name, ok := strings.Cut(release, "/")
	if !ok {
		return ""
	}
	for _, s := range r.Cluster.Config.Stages {
		st, err := r.Cluster.Dir.Stage(s.Name).LastKnown()
		if err != nil {
			continue
		}
		for _, res := range st.Managed() {
			if res.Type == "helm_release" && res.Attributes["namespace"] == namespace &&
				res.Attributes["name"] == name {
				return r.Cluster.Command("create") + " --only " + s.Name
			}
		}
	}
	return ""
}

// bootstrappedBefore reports whether the stage's state has a Talos bootstrap from an earlier run.
func bootstrappedBefore(r *run.Run, s Subject) bool {
	st, err := r.Cluster.Dir.Stage(s.Name).LastKnown()
	if err != nil {
		return false
	}
	before := false
	for _, res := range st.Managed() {
		before = before || res.Type == "talos_machine_bootstrap"
	}
	if !before || r.Files == nil {
		return before
	}
	events, err := r.Files.Events()
	return err == nil && !slices.ContainsFunc(events, func(e event.Event) bool {
		return e.Kind == event.Resource && e.Action == "create" &&
			strings.Contains(e.Address, "talos_machine_bootstrap.")
	})
}

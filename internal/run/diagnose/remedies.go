package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
)

// addFix adds a fix where the same castle command would fail in the same way for ever.
func addFix(r *run.Run, f *run.Finding) {
	if fix := reinstall(r, f.Found.Release); fix != "" {
		f.Report.Cause += "; without helm, " + fix +
			" recreates it too, but first removes everything of the release"
	}
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
		f.Report.Cause = "etcd was bootstrapped, by Terraform's state, and runs on no control plane: " +
			"all of them were lost or reset since, and nothing is left to join"
		f.Report.Next = fmt.Sprintf("%s && %s", r.Cluster.Command("destroy"), r.Cluster.Command("create"))
	}
}

// reinstall returns the command that installs a Helm release anew, if a stage installed it.
func reinstall(r *run.Run, release string) string {
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
				return r.Cluster.TerraformCommand(s.Name) + " apply -replace=" + cluster.Word(res.Address)
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
	if err != nil {
		return false
	}
	for _, e := range events {
		if e.Kind == event.Resource && e.Action == "create" &&
			strings.Contains(e.Address, "talos_machine_bootstrap.") {
			return false
		}
	}
	return true
}

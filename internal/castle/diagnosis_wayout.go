package castle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// showWayOut says how to get out where the same castle command would fail in the
// same way for ever.
func (r *run) showWayOut(f *finding) {
	if way := r.reinstall(f.found.Release); way != "" {
		f.said.Cause += "; without helm at hand, " + way + " brings it back too, but first removes all that the release has made"
	}
}

// startOver tells of a cluster that no create can complete: Terraform's state
// says that etcd was bootstrapped, so that it never will be again, and no control
// plane has one. Every other gate of the stage is closed because of that.
func (r *run) startOver(s subject, findings []*finding) {
	// Where Talos answers for its services, the diagnosis is better evidence than the check.
	lost := slices.ContainsFunc(findings, func(f *finding) bool {
		return f.kind == gate.EtcdDown || f.found.Kind == gate.NeverBootstrapped
	})
	if !lost || !r.bootstrappedBefore(s) {
		return
	}
	for _, f := range findings {
		f.said.Cause = "Terraform's state says that etcd was bootstrapped, and it runs on no control plane: all of them were lost or reset since, and nothing is left to join"
		f.said.Next = fmt.Sprintf("%s && %s", r.command("destroy"), r.command("create"))
	}
}

// reinstall is the command that installs a Helm release anew, if a stage of this
// cluster has installed it.
func (r *run) reinstall(release string) string {
	namespace, name, ok := strings.Cut(release, "/")
	if !ok {
		return ""
	}
	for _, s := range r.cluster.Stages {
		st, err := r.dir.Stage(s.Name).LastKnown()
		if err != nil {
			continue
		}
		for _, res := range st.Managed() {
			if res.Type == "helm_release" && res.Attributes["namespace"] == namespace && res.Attributes["name"] == name {
				return r.terraformCommand(s.Name) + " apply -replace=" + word(res.Address)
			}
		}
	}
	return ""
}

// bootstrappedBefore reports whether the stage's state has a bootstrap of Talos
// that this run has not made. Terraform never does one again.
func (r *run) bootstrappedBefore(s subject) bool {
	st, err := r.dir.Stage(s.name).LastKnown()
	if err != nil {
		return false
	}
	before := false
	for _, res := range st.Managed() {
		before = before || res.Type == "talos_machine_bootstrap"
	}
	if !before || r.files == nil {
		return before
	}
	events, err := r.files.Events()
	if err != nil {
		return false
	}
	for _, e := range events {
		if e.Kind == event.Resource && e.Action == "create" && strings.Contains(e.Address, "talos_machine_bootstrap.") {
			return false
		}
	}
	return true
}

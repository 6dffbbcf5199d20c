package cluster

import (
	"strings"

	"github.com/ephemeral-castle/castle/internal/process"
)

// word quotes s for a shell if it has to be.
func Word(s string) string {
	if strings.ContainsAny(s, " \t\n'\"\\$&;|<>()*?[]#~`!{}") {
		return process.Quote(s)
	}
	return s
}

// terraformCommand is the command line that runs Terraform on a stage, up to its "--".
func (r *Cluster) TerraformCommand(stage string) string {
	return r.Command("terraform") + " " + stage + " --"
}

// forgetCommand is the command line that forgets a resource of a stage, up to its address.
func (r *Cluster) UntrackCommand(stage string) string { return r.Command("state forget") + " " + stage }

// command is a castle command for the same cluster and state, as the user would type it.
func (r *Cluster) Command(name string) string { return r.CommandLine(name) + " " + r.Options.Cluster }

// bare is a castle command for the same state.
func (r *Cluster) CommandLine(name string) string {
	castle := "castle"
	if r.Options.StateDir != "" {
		castle += " --state-dir " + process.Quote(r.Options.StateDir)
	}
	return castle + " " + name
}

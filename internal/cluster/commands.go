package cluster

import (
	"strings"

	"github.com/ephemeral-castle/castle/internal/process"
)

// Word quotes s for a shell if necessary.
func Word(s string) string {
	if strings.ContainsAny(s, " \t\n'\"\\$&;|<>()*?[]#~`!{}") {
		return process.Quote(s)
	}
	return s
}

// TerraformCommand returns the command line that runs Terraform on a stage, up to its "--".
func (r *Cluster) TerraformCommand(stage string) string {
	return r.Command("terraform") + " " + stage + " --"
}

// UntrackCommand returns the command line that untracks a resource of a stage, up to its address.
func (r *Cluster) UntrackCommand(stage string) string { return r.Command("state forget") + " " + stage }

// Command returns a castle command for the same cluster and state directory, as the user would type it.
func (r *Cluster) Command(name string) string { return r.CommandLine(name) + " " + r.Options.Cluster }

// CommandLine returns a castle command for the same state directory.
func (r *Cluster) CommandLine(name string) string {
	castle := "castle"
	if r.Options.StateDir != "" {
		castle += " --state-dir " + process.Quote(r.Options.StateDir)
	}
	return castle + " " + name
}

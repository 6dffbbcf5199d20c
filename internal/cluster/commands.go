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
func (c *Cluster) TerraformCommand(stage string) string {
	return c.Command("terraform") + " " + stage + " --"
}

// UntrackCommand returns the command line that untracks a resource of a stage, up to its address.
func (c *Cluster) UntrackCommand(stage string) string { return c.Command("state forget") + " " + stage }

// Command returns a castle command for the same cluster and state directory, as the user would type it.
func (c *Cluster) Command(name string) string { return c.CommandLine(name) + " " + c.Options.Cluster }

// CommandLine returns a castle command for the same state directory.
func (c *Cluster) CommandLine(name string) string {
	castle := "castle"
	if c.Options.StateDir != "" {
		castle += " --state-dir " + process.Quote(c.Options.StateDir)
	}
	return castle + " " + name
}

package cluster

import (
	"fmt"
	"io/fs"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
)

// Reporter shows a run's events to the user. The run calls it for one event at a time.
type Reporter interface{ Report(event.Event) }

// Options select a cluster and hold the flags that all commands share.
type Options struct {
	Repository string            // the castle repository's root; empty with Recorded if there is none
	Cluster    string            // "blue" or "blue/proxmox"
	StateDir   string            // --state-dir; empty: from Environ
	Vars       map[string]string // --var
	VarFiles   []string          // --var-file
	Environ    []string          // the caller's environment
	// Parallelism bounds how many Terraform processes run at a time; 0 means 4.
	Parallelism int
	Reporter    Reporter
	Version     string // castle's own
	Library     fs.FS  // the embedded stages
	Templates   fs.FS  // the embedded templates
	// Recorded tolerates an invalid configuration for a command that works from
	// the records: see Cluster.InvalidConfig.
	Recorded bool
	GitOps   string // the folder of Flux's repository; overrides the cluster's own
}

// Load reads the cluster's configuration. The error is a *ConfigError if it is invalid.
func (o Options) Load() (*config.Cluster, error) {
	cluster, diags := config.Load(o.Config())
	if diags.HasErrors() {
		return cluster, &ConfigError{Diagnostics: diags, Files: cluster.Files}
	}
	return cluster, nil
}

// Config returns the options to read the cluster's configuration with.
func (o Options) Config() config.Options {
	return config.Options{
		Repository: o.Repository, Cluster: o.Cluster,
		Vars: o.Vars, VarFiles: o.VarFiles, Environ: o.Environ,
		Gates: GateTypes(), Preflights: PreflightTypes(), Exists: ExistsTypes(),
		Library: o.Library, Templates: o.Templates, CastleVersion: o.Version, GitOps: o.GitOps,
	}
}

// ConfigError holds all errors of a configuration.
type ConfigError struct {
	Diagnostics hcl.Diagnostics
	Files       map[string]*hcl.File // for quoting the lines
}

func (e *ConfigError) Error() string { return e.Diagnostics.Error() }

// UsageError reports a request that castle cannot carry out as given.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// Usagef returns a *UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

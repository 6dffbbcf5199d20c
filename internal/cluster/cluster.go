// Package cluster opens one cluster: its validated configuration beside its state
// directory and the records in that. Opening a cluster runs nothing and takes no lock;
// package run does both.
//
// It also lists all types of gates, preflights and lookups, because reading a
// configuration needs them.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
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

// Cluster is one cluster's configuration beside its state directory.
type Cluster struct {
	Options       Options
	Config        *config.Cluster
	Dir           *state.Dir
	Masker        *secret.Masker
	InvalidConfig *ConfigError

	mu     sync.Mutex
	active Interruptible // the run that holds the cluster's lock
}

// ConfigError holds all errors of a configuration.
type ConfigError struct {
	Diagnostics hcl.Diagnostics
	Files       map[string]*hcl.File // for quoting the lines
}

func (e *ConfigError) Error() string { return e.Diagnostics.Error() }

// Open reads and validates the cluster's configuration and opens its state directory. It runs nothing. An
// invalid configuration is a *ConfigError.
func Open(o Options) (*Cluster, error) {
	cluster, err := o.Load()
	var invalid *ConfigError
	if errors.As(err, &invalid) && !o.Recorded {
		return nil, invalid
	}
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	if cluster.Name == "" {
		if cluster.Name, cluster.Platform, err = recordedName(root, o.Cluster); err != nil {
			return nil, err
		}
		if cluster.Name == "" {
			return nil, invalid
		}
		if o.Repository != "" {
			cluster.Dir = filepath.Join(o.Repository, "clusters", cluster.Name, cluster.Platform)
		}
	}
	if err := OutOfTree(root, o.Repository); err != nil {
		return nil, err
	}
	dir, err := state.Open(root, cluster.Name, cluster.Platform)
	if err != nil {
		return nil, err
	}
	dir.KeepSnapshots(cluster.Snapshots)
	masker := &secret.Masker{}
	masker.Add(cluster.Secrets()...)
	return &Cluster{Options: o, Config: cluster, Dir: dir, Masker: masker, InvalidConfig: invalid}, nil
}

// Load reads the cluster's configuration. The error is a *ConfigError if it is invalid.
func (o Options) Load() (*config.Cluster, error) {
	cluster, diags := config.Load(o.config())
	if diags.HasErrors() {
		return cluster, &ConfigError{Diagnostics: diags, Files: cluster.Files}
	}
	return cluster, nil
}

// Interruptible is a run that holds the cluster's lock, as a signal handler sees it.
type Interruptible interface {
	// Interrupt reports the cost of ending the run now. It ends nothing: the run's context and Kill do.
	// times counts the user's interrupts.
	Interrupt(times int)
	// Kill ends every Terraform of the run at once, with its providers, and loses
	// their unfinished work. A third interrupt calls it.
	Kill(ctx context.Context) error
}

// Active returns the run that holds the cluster's lock, nil if there is none.
func (c *Cluster) Active() Interruptible {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}

// SetActive registers the run that holds the cluster's lock; nil when it has ended.
func (c *Cluster) SetActive(r Interruptible) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = r
}

// Name returns the cluster with its platform: "blue/proxmox".
func (c *Cluster) Name() string { return c.Config.Name + "/" + c.Config.Platform }

// recordedName finds a cluster that is recorded but no longer configured; "" if there is none.
func recordedName(root, reference string) (name, platform string, err error) {
	all, err := state.Clusters(root)
	if err != nil {
		return "", "", err
	}
	var found []string
	for _, cluster := range all {
		if cluster == reference || strings.HasPrefix(cluster, reference+"/") {
			found = append(found, cluster)
		}
	}
	if len(found) > 1 {
		return "", "", &UsageError{
			Message: fmt.Sprintf("cluster %q: several are recorded; say %s", reference,
				strings.Join(found, " or ")),
		}
	}
	if len(found) == 1 {
		name, platform, _ = strings.Cut(found[0], "/")
	}
	return name, platform, nil
}

// OutOfTree refuses a state directory inside the repository: `git clean` would delete it, and with it the
// record of all objects.
func OutOfTree(root, repository string) error {
	if repository == "" {
		return nil
	}
	in, err := filepath.Rel(repository, root)
	if err == nil && filepath.IsLocal(in) {
		return &UsageError{Message: fmt.Sprintf("state directory %s lies inside the repository %s, "+
			"where `git clean` would destroy it; choose another with --state-dir or CASTLE_STATE_DIR",
			root, repository)}
	}
	return nil
}

// config returns the options to read the cluster's configuration with.
func (o Options) config() config.Options {
	return config.Options{
		Repository: o.Repository, Cluster: o.Cluster,
		Vars: o.Vars, VarFiles: o.VarFiles, Environ: o.Environ,
		Gates: GateTypes(), Preflights: PreflightTypes(), Exists: ExistsTypes(),
		Library: o.Library, Templates: o.Templates, CastleVersion: o.Version, GitOps: o.GitOps,
	}
}

// FindBinary returns a function that finds Terraform on its first call.
func (c *Cluster) FindBinary(ctx context.Context, notice func(string)) func() (terraform.Binary, error) {
	return sync.OnceValues(func() (terraform.Binary, error) {
		return terraform.Find(ctx, c.Shared(".terraform"), notice)
	})
}

// Shared returns a folder of the state root that all clusters use.
func (c *Cluster) Shared(name string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(c.Dir.Path())), name)
}

// Package castle raises a cluster and takes it down again. It walks the stages
// that the configuration describes, or that the state directory recorded, and
// for each of them drives Terraform, asks the preflights and waits for the gates.
//
// How it thinks: a run is a walk over tasks. A stage is one task; a preflight is
// one of its own, so that it can be asked before any stage changes anything; a
// gate that waits for other stages is one too, so that its stage is applied
// early and judged late. What is ready is decided by gates alone, never by the
// fact that Terraform has ended.
//
// It never writes to a terminal: everything it has to say goes to a Reporter and
// to the run's journal as an event.
package castle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/infisical"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/probe"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/vault"
)

// Reporter shows a run's events to whoever watches. It is called for one event
// at a time.
type Reporter interface{ Report(event.Event) }

// Options say which cluster is meant and what a command was given for it.
type Options struct {
	Repository string            // the castle repository's root; empty, if there is none and Recorded says that this is no matter
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
	// Recorded says that the command works from what was recorded, so that an
	// invalid configuration need not stop it: see Castle.Invalid.
	Recorded bool
	GitOps   string // the folder of Flux's repository, in the place of the one that the cluster names
}

const defaultParallelism = 4

// Castle is one cluster's configuration beside its state directory.
type Castle struct {
	options Options
	cluster *config.Cluster
	dir     *state.Dir
	masker  *secret.Masker
	invalid *ConfigError

	mu     sync.Mutex
	active Interruptible // the run that holds the cluster's lock
}

// ConfigError holds what is wrong with a configuration, all of it at once.
type ConfigError struct {
	Diagnostics hcl.Diagnostics
	Files       map[string]*hcl.File // for quoting the lines
}

func (e *ConfigError) Error() string { return e.Diagnostics.Error() }

// GateTypes is every type of gate that a stage may use.
func GateTypes() []gate.Type {
	return slices.Concat(kube.GateTypes(), talos.GateTypes(), probe.GateTypes())
}

// PreflightTypes is every type of preflight that a stage may use.
func PreflightTypes() []gate.PreflightType {
	return slices.Concat(proxmox.PreflightTypes(), talos.PreflightTypes(), vault.PreflightTypes())
}

// PreflightMaintenance is the preflight of platforms whose machines somebody else made.
const PreflightMaintenance = talos.PreflightMaintenance

// ExistsTypes is every question that an adoption may ask.
func ExistsTypes() []gate.ExistsType {
	return slices.Concat(infisical.ExistsTypes(), kube.ExistsTypes(), talos.ExistsTypes())
}

// Open reads and validates the cluster's configuration and opens its state
// directory. Nothing is run. An invalid configuration is a *ConfigError.
func Open(o Options) (*Castle, error) {
	cluster, err := o.load()
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
	if err := outOfTree(root, o.Repository); err != nil {
		return nil, err
	}
	dir, err := state.Open(root, cluster.Name, cluster.Platform)
	if err != nil {
		return nil, err
	}
	dir.KeepSnapshots(cluster.Snapshots)
	masker := &secret.Masker{}
	masker.Add(cluster.Secrets()...)
	return &Castle{options: o, cluster: cluster, dir: dir, masker: masker, invalid: invalid}, nil
}

// load reads the cluster's configuration, which may be invalid: the error is a
// *ConfigError then.
func (o Options) load() (*config.Cluster, error) {
	cluster, diags := config.Load(o.config())
	if diags.HasErrors() {
		return cluster, &ConfigError{Diagnostics: diags, Files: cluster.Files}
	}
	return cluster, nil
}

// Invalid is what is wrong with the configuration, where Options.Recorded let
// that pass; else nil.
func (c *Castle) Invalid() *ConfigError { return c.invalid }

// Interruptible is a run that holds the cluster's lock, as a signal handler sees it.
type Interruptible interface {
	// Interrupt reports what ending the run would cost. It ends nothing: that is
	// for the run's context, or for Kill. times counts the user's interrupts.
	Interrupt(times int)
	// Kill ends every Terraform of the run at once, with its providers. What they
	// were doing is lost; it is the answer to a third interrupt.
	Kill(ctx context.Context) error
}

// Active returns the run that holds the cluster's lock, nil if there is none.
func (c *Castle) Active() Interruptible {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}

// SetActive registers the run that holds the cluster's lock; nil when it has ended.
func (c *Castle) SetActive(r Interruptible) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = r
}

// Cluster is the configuration that Open read.
func (c *Castle) Cluster() *config.Cluster { return c.cluster }

// Name is the cluster with its platform: "blue/proxmox".
func (c *Castle) Name() string { return c.cluster.Name + "/" + c.cluster.Platform }

// recordedName finds a cluster that the configuration does not know any more, but
// of which something is recorded; "" if there is none.
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
		return "", "", &UsageError{Message: fmt.Sprintf("cluster %q: several are recorded; say %s", reference, strings.Join(found, " or "))}
	}
	if len(found) == 1 {
		name, platform, _ = strings.Cut(found[0], "/")
	}
	return name, platform, nil
}

// outOfTree refuses a state directory inside the repository: `git clean` would
// destroy it, and with it the knowledge of what runs.
func outOfTree(root, repository string) error {
	if repository == "" {
		return nil
	}
	in, err := filepath.Rel(repository, root)
	if err == nil && filepath.IsLocal(in) {
		return &UsageError{Message: fmt.Sprintf("state directory %s lies inside the repository %s, "+
			"where `git clean` would destroy it; choose another with --state-dir or CASTLE_STATE_DIR", root, repository)}
	}
	return nil
}

func (c *Castle) parallelism() int {
	if c.options.Parallelism > 0 {
		return c.options.Parallelism
	}
	return defaultParallelism
}

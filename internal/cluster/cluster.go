// Package cluster opens one cluster: its validated configuration beside its state directory and the records
// in that. Opening a cluster runs nothing and takes no lock; package run does both.
//
// It also lists all types of gates, preflights and lookups, because reading a configuration needs them.
package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

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

// FindBinary returns a function that finds Terraform on its first call.
func (c *Cluster) FindBinary(ctx context.Context, notice func(string)) func() (terraform.Binary, error) {
	return sync.OnceValues(func() (terraform.Binary, error) {
		return terraform.Find(ctx, c.Shared(".terraform"), notice)
	})
}

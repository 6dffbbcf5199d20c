// Package cluster opens one cluster: its validated configuration beside its state directory and the records
// in that. Opening a cluster runs nothing and takes no lock; package run does both. It also lists all types
// of gates, preflights and lookups, because reading a configuration needs them.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Cluster is one cluster's configuration beside its state directory.
type Cluster struct {
	Options       Options
	Config        *config.Cluster
	Dir           *state.Dir
	Masker        *secret.Masker
	InvalidConfig *ConfigError
	Store         *StateStore       // nil: Dir alone holds the state
	Copy          *workingcopy.Copy // of the state in Store, in Dir; nil without one
	Notices       []string          // about Copy, for the user

	downloads string // what Shared returns a folder of

	active atomic.Pointer[Interruptible] // the run that holds the cluster's lock
}

// Open reads and validates the cluster's configuration and opens its state directory. If a store is
// configured, it brings the directory to the newest commit there. An invalid configuration is a *ConfigError.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	cluster, err := o.Load()
	var invalid *ConfigError
	if errors.As(err, &invalid) && !o.Recorded {
		return nil, invalid
	}
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	shared, err := OpenStore(ctx, o)
	if err != nil {
		return nil, err
	}
	if cluster.Name == "" {
		if cluster.Name, cluster.Platform, err = recordedName(ctx, shared, root, o.Cluster); err != nil {
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
	c := &Cluster{
		Options: o, Config: cluster, Masker: o.NewMasker(cluster), InvalidConfig: invalid, Store: shared,
	}
	c.downloads, err = shared.Downloads(o, root)
	if err = cmp.Or(err, c.refuseSecretsOnDisk()); err != nil {
		return nil, errors.Join(err, shared.Close())
	}
	open := shared.OpenDir
	if o.AnyPlace {
		open = shared.openAnyPlace
	}
	if c.Dir, c.Copy, c.Notices, err = open(ctx, root, cluster.Name, cluster.Platform); err != nil {
		return nil, errors.Join(err, shared.Close())
	}
	c.Dir.KeepSnapshots(cluster.Snapshots)
	if shared != nil {
		c.Notices = slices.Concat(shared.notices, c.Notices)
	}
	return c, nil
}

// Place names where the state is: the store, else the state directory.
func (c *Cluster) Place() string {
	if c.Store == nil {
		return c.Dir.Path()
	}
	return c.Store.Store.URL()
}

// Holder returns the live run that holds a cluster's lock, here or in the store; nil if none is known.
func Holder(ctx context.Context, c *Cluster) *state.HeldError {
	if held := c.Dir.Holder(); held != nil || c.Copy == nil {
		return held
	}
	head, err := c.Copy.Log().Head(ctx)
	if err != nil || head == nil || head.Lock == nil || commits.Elapsed(head.Time) > head.Lock.Lasts {
		return nil
	}
	return &state.HeldError{Cluster: c.Name(), Run: head.Lock.Run, Host: head.Lock.Host, PID: head.Lock.PID,
		Since: head.Lock.Since, Store: c.Place(), Seen: head.Time}
}

// Recorded opens the state directory of a cluster, such as "blue/proxmox", at the store's newest commit.
func (s *StateStore) Recorded(ctx context.Context, root, name string) (_ *state.Dir, held *state.HeldError,
	err error) {
	c := &Cluster{Config: &config.Cluster{}, Store: s}
	c.Config.Name, c.Config.Platform, _ = strings.Cut(name, "/")
	if c.Dir, c.Copy, _, err = s.OpenDir(ctx, root, c.Config.Name, c.Config.Platform); err != nil {
		return nil, nil, err
	}
	return c.Dir, Holder(ctx, c), nil
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
	if r := c.active.Load(); r != nil {
		return *r
	}
	return nil
}

// SetActive registers the run that holds the cluster's lock; nil when it has ended.
func (c *Cluster) SetActive(r Interruptible) { c.active.Store(&r) }

// Name returns the cluster with its platform: "blue/proxmox".
func (c *Cluster) Name() string { return c.Config.Name + "/" + c.Config.Platform }

// RecordedTarget returns the cluster as the last run has recorded it, without a kubeconfig if there is none.
func (c *Cluster) RecordedTarget() (gate.Target, error) {
	kubeconfig, err := ownfile.ReadFile(c.Dir.Kubeconfig())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return gate.Target{Kubeconfig: kubeconfig, Environ: c.Options.Environ}, err
}

// FindBinary returns a function that finds Terraform, or OpenTofu where that is chosen, on its first call.
func (c *Cluster) FindBinary(ctx context.Context, notice func(string)) func() (terraform.Binary, error) {
	return sync.OnceValues(func() (terraform.Binary, error) {
		product, err := c.Product()
		if err != nil {
			return terraform.Binary{}, err
		}
		return terraform.Find(ctx, product, c.Shared(".terraform"), notice)
	})
}

// CheckProgram refuses to run a program on states that another has written: it would read them in part.
func (c *Cluster) CheckProgram() error {
	product, err := c.Product()
	if err != nil {
		return err
	}
	names, err := c.Dir.Stages()
	for _, name := range names {
		rec, unread := c.Dir.Stage(name).Record()
		if has := cmp.Or(rec.Program, terraform.Terraform.Program); unread == nil && has != product.Program {
			by := has
			if s, err := c.Dir.Stage(name).LastKnown(); err == nil {
				by = strings.TrimSpace(has + " " + s.Version)
			}
			return Usagef("%s: %s has written the state of stage %s, and %s would read it in part\n"+
				"  set CASTLE_TERRAFORM=%s, or binary = %q in the block terraform of castle.hcl",
				c.Name(), by, name, product.Program, has, has)
		}
	}
	return err
}

// Product returns the product that runs the cluster's stages, also where its configuration is lost.
func (c *Cluster) Product() (terraform.Product, error) {
	return Product(cmp.Or(c.Config.Program, config.ReadProgram(c.Options.Config())))
}

// Product returns the product of the program that the user has chosen; Terraform if none is.
func Product(chosen string) (terraform.Product, error) {
	product, err := terraform.ProductOf(cmp.Or(chosen, terraform.Terraform.Program))
	if err != nil {
		return product, Usagef("CASTLE_TERRAFORM: %v", err)
	}
	return product, nil
}

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

// maskedError is an error with masked text. Callers may match the wrapped error but must not print it.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Unwrap() error { return e.err }

// MaskError masks every error joined in err: Terraform also quotes values not known to be sensitive.
func (c *Cluster) MaskError(err error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return errors.Join(xslices.Map(joined.Unwrap(), c.MaskError)...)
	}
	return &maskedError{text: c.Masker.Hide(err.Error()), err: err}
}

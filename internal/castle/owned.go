package castle

import (
	"context"
	"errors"
	"slices"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// remember keeps what a stage's resources stand for in the datacenter beside its
// state, before they are destroyed: afterwards the state no longer says it, and a
// destroy that did not prove everything gone is completed by a later one.
func (r *destruction) remember(ctx context.Context, d *Doomed) error {
	dir := r.dir.Stage(d.Record.Name)
	st, err := dir.State()
	if err != nil {
		return err
	}
	traces, err := ownedBy(dir)
	if err != nil {
		return err
	}
	marks, err := marksOf(dir)
	if err != nil {
		return err
	}
	traces = proxmox.Merge(traces, proxmox.OwnedBy(known(st, marks...))...)
	if len(traces) == 0 {
		return nil
	}
	if client, err := r.datacenter(d); err == nil {
		traces = proxmox.Search{Client: client}.Complete(ctx, traces)
	}
	return ownedNote(dir).Write(traces)
}

// disown has no later destroy ask for these things any more.
func disown(dir *state.Stage, things []proxmox.Owned) error {
	traces, err := ownedBy(dir)
	if err != nil || len(traces) == 0 {
		return err
	}
	return ownedNote(dir).Write(proxmox.Without(traces, things...))
}

// hold keeps the addresses of what a stage owns beside its state, before they are
// destroyed. What outlives the cluster, such as a machine, is to be proved left by
// whoever had it, also where Terraform has said so and castle was killed.
func hold(dir *state.Stage, d *Doomed) error {
	if len(d.Record.Preflights) == 0 {
		return nil
	}
	held, err := heldBy(dir)
	if err != nil {
		return err
	}
	for _, address := range d.Resources {
		if !slices.Contains(held, address) {
			held = append(held, address)
		}
	}
	return heldNote(dir).Write(held)
}

func heldNote(dir *state.Stage) state.Document[[]string] {
	return state.StageDocument[[]string](dir, "held")
}

// heldBy reads what a destroy has held; nothing if none has come as far as that.
func heldBy(dir *state.Stage) ([]string, error) { return heldNote(dir).Value() }

// letLoose has no later destroy prove what these addresses stood for.
func letLoose(dir *state.Stage, addresses []string) error {
	held, err := heldBy(dir)
	if err != nil || len(held) == 0 {
		return err
	}
	return heldNote(dir).Write(slices.DeleteFunc(held, func(address string) bool { return slices.Contains(addresses, address) }))
}

func ownedNote(dir *state.Stage) state.Document[[]proxmox.Owned] {
	return state.StageDocument[[]proxmox.Owned](dir, "owned")
}

// ownedBy reads what was remembered of a stage; nothing if no destroy has come
// as far as that.
func ownedBy(dir *state.Stage) ([]proxmox.Owned, error) { return ownedNote(dir).Value() }

// datacenter makes a client of the datacenter that a stage's things are in: the
// one that its own preflight asks, else that of another stage's, else the one
// that the environment names for the Terraform provider.
func (r *destruction) datacenter(d *Doomed) (*proxmox.Client, error) {
	for _, one := range append([]*Doomed{d}, r.all...) {
		asked, err := datacentersOf(one.Record)
		if err != nil {
			return nil, err
		}
		if len(asked) > 0 {
			return proxmox.NewClient(asked[0].Options)
		}
	}
	endpoint, token, insecure := process.Getenv(r.options.Environ, "PROXMOX_VE_ENDPOINT"), process.Getenv(r.options.Environ, "PROXMOX_VE_API_TOKEN"), process.Getenv(r.options.Environ, "PROXMOX_VE_INSECURE")
	if endpoint == "" || token == "" {
		return nil, errors.New("no preflight vm_ids was recorded that says how to reach Proxmox; " +
			"set PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN")
	}
	return proxmox.NewClient(proxmox.Options{Endpoint: endpoint, Token: token, Insecure: insecure == "1" || insecure == "true"})
}

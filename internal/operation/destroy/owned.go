package destroy

import (
	"context"
	"errors"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// remember keeps what a stage's resources stand for in the datacenter beside its
// state, before they are destroyed: afterwards the state no longer says it, and a
// destroy that did not prove everything gone is completed by a later one.
func (r *destruction) saveOwned(ctx context.Context, d *Stage) error {
	dir := r.run.Cluster.Dir.Stage(d.Record.Name)
	st, err := dir.State()
	if err != nil {
		return err
	}
	traces, err := cluster.Owned(dir)
	if err != nil {
		return err
	}
	marks, err := cluster.MachineIDs(dir)
	if err != nil {
		return err
	}
	traces = proxmox.Merge(traces, proxmox.OwnedBy(cluster.Known(st, marks...))...)
	if len(traces) == 0 {
		return nil
	}
	if client, err := r.datacenter(d); err == nil {
		traces = proxmox.Search{Client: client}.Complete(ctx, traces)
	}
	return cluster.OwnedNote(dir).Write(traces)
}

// hold keeps the addresses of what a stage owns beside its state, before they are
// destroyed. What outlives the cluster, such as a machine, is to be proved left by
// whoever had it, also where Terraform has said so and castle was killed.
func saveHeld(dir *state.Stage, d *Stage) error {
	if len(d.Record.Preflights) == 0 {
		return nil
	}
	held, err := cluster.Held(dir)
	if err != nil {
		return err
	}
	for _, address := range d.Resources {
		if !slices.Contains(held, address) {
			held = append(held, address)
		}
	}
	return cluster.HeldNote(dir).Write(held)
}

// datacenter makes a client of the datacenter that a stage's things are in: the
// one that its own preflight asks, else that of another stage's, else the one
// that the environment names for the Terraform provider.
func (r *destruction) datacenter(d *Stage) (*proxmox.Client, error) {
	for _, one := range append([]*Stage{d}, r.all...) {
		asked, err := cluster.Datacenters(one.Record)
		if err != nil {
			return nil, err
		}
		if len(asked) > 0 {
			return proxmox.NewClient(asked[0].Options)
		}
	}
	endpoint, token, insecure := process.Getenv(r.run.Cluster.Options.Environ, "PROXMOX_VE_ENDPOINT"), process.Getenv(r.run.Cluster.Options.Environ, "PROXMOX_VE_API_TOKEN"), process.Getenv(r.run.Cluster.Options.Environ, "PROXMOX_VE_INSECURE")
	if endpoint == "" || token == "" {
		return nil, errors.New("no preflight vm_ids was recorded that says how to reach Proxmox; " +
			"set PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN")
	}
	return proxmox.NewClient(proxmox.Options{Endpoint: endpoint, Token: token, Insecure: insecure == "1" || insecure == "true"})
}

package castle

import (
	"context"
	"errors"
	"strings"

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
	traces = proxmox.Merge(traces, proxmox.Traces(known(st, marks...))...)
	if len(traces) == 0 {
		return nil
	}
	if client, err := r.datacenter(d); err == nil {
		traces = proxmox.Search{Client: client}.Survey(ctx, traces)
	}
	return ownedNote(dir).Write(traces)
}

// disown has no later destroy ask for these things any more.
func disown(dir *state.Stage, things []proxmox.Trace) error {
	traces, err := ownedBy(dir)
	if err != nil || len(traces) == 0 {
		return err
	}
	return ownedNote(dir).Write(proxmox.Without(traces, things...))
}

func ownedNote(dir *state.Stage) state.Note { return dir.Note("owned") }

// ownedBy reads what was remembered of a stage; nothing if no destroy has come
// as far as that.
func ownedBy(dir *state.Stage) (traces []proxmox.Trace, err error) {
	err = ownedNote(dir).Read(&traces)
	return traces, err
}

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
	endpoint, token, insecure := r.variable("PROXMOX_VE_ENDPOINT"), r.variable("PROXMOX_VE_API_TOKEN"), r.variable("PROXMOX_VE_INSECURE")
	if endpoint == "" || token == "" {
		return nil, errors.New("no preflight vm_ids was recorded that says how to reach Proxmox; " +
			"set PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN")
	}
	return proxmox.NewClient(proxmox.Options{Endpoint: endpoint, Token: token, Insecure: insecure == "1" || insecure == "true"})
}

// variable is a variable of the caller's environment.
func (c *Castle) variable(name string) string {
	for _, kv := range c.options.Environ {
		if k, value, ok := strings.Cut(kv, "="); ok && k == name {
			return value
		}
	}
	return ""
}

package castle

import (
	"context"
	"fmt"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/proxmox"
)

// hinderedError says which machines Proxmox would not delete.
type hinderedError struct {
	begun  bool // some of the stage is gone already
	things []event.OwnedObject
}

func (e *hinderedError) Error() string {
	if e.begun {
		return "not gone on with, as Proxmox would not delete:" + listed(e.things)
	}
	return "nothing of it was touched, as Proxmox would not delete:" + listed(e.things)
}

// hindered refuses to destroy a stage of which some machine would be left: the
// others would be stopped and deleted for a half that nobody has asked for. What
// cannot be asked hinders nobody; Terraform will hear it.
func (r *destruction) hindered(ctx context.Context, d *Doomed) error {
	traces := proxmox.OwnedBy(known(d.state))
	if len(traces) == 0 {
		return nil
	}
	client, err := r.datacenter(d)
	if err != nil {
		return nil
	}
	things, err := proxmox.Search{Client: client}.Blocked(ctx, traces)
	if err != nil || len(things) == 0 {
		return nil
	}
	return &hinderedError{d.attempted, things}
}

// halfwayError is a destroy that failed after it had begun, with what has become
// of the machines.
type halfwayError struct {
	err    error
	things []event.OwnedObject
}

func (e *halfwayError) Error() string { return e.err.Error() + "\n  by now:" + listed(e.things) }
func (e *halfwayError) Unwrap() error { return e.err }

// halfway asks, after a destroy has failed with err, what has become of the
// stage's machines, disks and files, for the receipt and for whoever has to go on.
func (r *destruction) halfway(ctx context.Context, d *Doomed, err error) error {
	traces, unread := ownedBy(r.dir.Stage(d.Record.Name))
	if ctx.Err() != nil || unread != nil || len(traces) == 0 {
		return err
	}
	client, unreached := r.datacenter(d)
	if unreached != nil {
		return err
	}
	things := proxmox.Search{Client: client}.Now(ctx, traces)
	if r.keep(d.Record.Name, things) == nil { // all are gone; it failed at something else
		return err
	}
	held, unheard := proxmox.Search{Client: client}.Blocked(ctx, traces)
	var machines []event.OwnedObject
	for _, t := range things {
		if t.Kind != proxmox.Machine {
			continue
		}
		// What nothing holds is no matter for hands: the same command destroys it.
		free := func(h event.OwnedObject) bool { return h.ID != t.ID }
		if unheard == nil && all(held, free) {
			t.Fix = ""
		}
		machines = append(machines, t)
	}
	return &halfwayError{err, machines}
}

// listed is a line for each thing, with the way out below it.
func listed(things []event.OwnedObject) string {
	var b strings.Builder
	for _, t := range things {
		fmt.Fprintf(&b, "\n  %s %s", t.Kind, t.ID)
		if t.Where != "" {
			fmt.Fprintf(&b, " on %s", t.Where)
		}
		switch {
		case t.Reason != "":
			fmt.Fprintf(&b, ": %s", t.Reason)
		case t.Gone:
			b.WriteString(": gone")
		}
		if t.Fix != "" {
			fmt.Fprintf(&b, "\n    - %s", t.Fix)
		}
	}
	return b.String()
}

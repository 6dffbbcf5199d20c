package destroy

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
)

// hinderedError says which machines Proxmox would not delete.
type blockedError struct {
	begun   bool // some of the stage is gone already
	objects []event.OwnedObject
}

func (e *blockedError) Error() string {
	if e.begun {
		return "not gone on with, as Proxmox would not delete:" + run.ListObjects(e.objects)
	}
	return "nothing of it was touched, as Proxmox would not delete:" + run.ListObjects(e.objects)
}

// hindered refuses to destroy a stage of which some machine would be left: the
// others would be stopped and deleted for a half that nobody has asked for. What
// cannot be asked hinders nobody; Terraform will hear it.
func (r *destruction) checkBlocked(ctx context.Context, d *Stage) error {
	traces := proxmox.OwnedBy(cluster.Known(d.state))
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
	return &blockedError{d.attempted, things}
}

// halfwayError is a destroy that failed after it had begun, with what has become
// of the machines.
type partialError struct {
	err     error
	objects []event.OwnedObject
}

func (e *partialError) Error() string {
	return e.err.Error() + "\n  by now:" + run.ListObjects(e.objects)
}

func (e *partialError) Unwrap() error { return e.err }

// halfway asks, after a destroy has failed with err, what has become of the
// stage's machines, disks and files, for the receipt and for whoever has to go on.
func (r *destruction) partialFailure(ctx context.Context, d *Stage, err error) error {
	traces, unread := cluster.Owned(r.run.Cluster.Dir.Stage(d.Record.Name))
	if ctx.Err() != nil || unread != nil || len(traces) == 0 {
		return err
	}
	client, unreached := r.datacenter(d)
	if unreached != nil {
		return err
	}
	things := proxmox.Search{Client: client}.Now(ctx, traces)
	if r.noteObjects(d.Record.Name, things) == nil { // all are gone; it failed at something else
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
	return &partialError{err, machines}
}

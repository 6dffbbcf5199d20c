package destroy

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
)

// blockedError lists the machines that Proxmox would not delete.
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

// checkBlocked refuses to destroy a stage if Proxmox would keep one of its machines: a half destroyed
// cluster is useless. If Proxmox does not answer, Terraform goes on.
func (s *stageDestruction) checkBlocked(ctx context.Context) error {
	owned := proxmox.OwnedBy(cluster.Known(s.stage.state))
	if len(owned) == 0 {
		return nil
	}
	client, err := s.destruction.datacenter(s.stage)
	if err != nil {
		return nil
	}
	objects, err := proxmox.Search{Client: client}.Blocked(ctx, owned)
	if err != nil || len(objects) == 0 {
		return nil
	}
	return &blockedError{s.stage.attempted, objects}
}

// partialError is a destroy that failed after it had begun, with the machines' fate.
type partialError struct {
	err     error
	objects []event.OwnedObject
}

func (e *partialError) Error() string {
	return e.err.Error() + "\n  by now:" + run.ListObjects(e.objects)
}

func (e *partialError) Unwrap() error { return e.err }

// partialFailure looks up the remaining machines, disks and files of the stage after a destroy has failed
// with err, for the receipt and the message.
func (s *stageDestruction) partialFailure(ctx context.Context, err error) error {
	owned, unread := cluster.Owned(s.dir)
	if ctx.Err() != nil || unread != nil || len(owned) == 0 {
		return err
	}
	client, unreached := s.destruction.datacenter(s.stage)
	if unreached != nil {
		return err
	}
	objects := proxmox.Search{Client: client}.Now(ctx, owned)
	if s.destruction.receipt.note(
		s.stage.Record.Name,
		objects,
	) == nil { // all are gone; it failed at something else
		return err
	}
	blocked, blockErr := proxmox.Search{Client: client}.Blocked(ctx, owned)
	var machines []event.OwnedObject
	for _, t := range objects {
		if t.Kind != proxmox.Machine {
			continue
		}
		// A machine that nothing blocks needs no fix: the same command destroys it.
		free := func(h event.OwnedObject) bool { return h.ID != t.ID }
		if blockErr == nil && every(blocked, free) {
			t.Fix = ""
		}
		machines = append(machines, t)
	}
	return &partialError{err, machines}
}

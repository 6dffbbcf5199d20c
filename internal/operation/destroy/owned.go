package destroy

import (
	"context"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/proxmox"
)

// saveOwned records the stage's objects in the datacenter before castle destroys them: the state loses them,
// and a later destroy may have to verify them.
func (s *stageDestruction) saveOwned(ctx context.Context) error {
	st, err := s.dir.State()
	if err != nil {
		return err
	}
	owned, err := cluster.Owned(s.dir)
	if err != nil {
		return err
	}
	ids, err := cluster.MachineIDs(s.dir)
	if err != nil {
		return err
	}
	owned = proxmox.Merge(owned, proxmox.OwnedBy(cluster.Known(st, ids...))...)
	if len(owned) == 0 {
		return nil
	}
	if client, err := s.destruction.datacenter(s.stage); err == nil {
		owned = proxmox.Search{Client: client}.Complete(ctx, owned)
	}
	return cluster.OwnedNote(s.dir).Write(owned)
}

// saveHeld records the addresses of the stage's objects before castle destroys them, so that a destroy after
// a kill still verifies that a machine was released.
func (s *stageDestruction) saveHeld() error {
	if len(s.stage.Record.Preflights) == 0 {
		return nil
	}
	held, err := cluster.Held(s.dir)
	if err != nil {
		return err
	}
	for _, address := range s.stage.Resources {
		if !slices.Contains(held, address) {
			held = append(held, address)
		}
	}
	return cluster.HeldNote(s.dir).Write(held)
}

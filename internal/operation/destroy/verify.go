package destroy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
)

// verifyAdopted looks up objects that Terraform reports as deleted, with the lookup that a create uses
// before it adopts an object. An object that still exists is a leftover. Without a lookup or an answer, the
// receipt reports that. Proxmox is verified elsewhere.
func (s *stageDestruction) verifyAdopted(ctx context.Context, addresses []string) error {
	var objects []event.OwnedObject
	asked := map[string]bool{}
	for i := range s.stage.Record.Adopts {
		a := &s.stage.Record.Adopts[i]
		if !a.Left && !slices.Contains(addresses, a.Address) {
			continue
		}
		object, err := s.verifyObject(ctx, a)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			s.run.Notice(
				fmt.Sprintf("%s: nobody can tell whether %s is gone: %v", s.stage.Record.Name, a.Address,
					err),
			)
			continue
		}
		asked[a.Address], a.Left = true, !object.Gone
		objects = append(objects, object)
	}
	s.noteUnverified(addresses, asked)
	if err := s.destruction.receipt.note(s.stage.Record.Name, objects); err != nil {
		// The state does not know it any more; the next destroy has to ask again.
		return errors.Join(err, s.dir.SetRecord(s.stage.Record))
	}
	return nil
}

// verifyObject looks up one object.
func (s *stageDestruction) verifyObject(
	ctx context.Context,
	a *state.RecordedAdopt,
) (event.OwnedObject, error) {
	types := cluster.ExistsTypes()
	i := slices.IndexFunc(types, func(t gate.ExistsType) bool { return t.Name == a.Exists.Type })
	if i < 0 {
		return event.OwnedObject{}, fmt.Errorf("this castle does not know the question %s", a.Exists.Type)
	}
	values, err := a.Exists.Decode()
	if err != nil {
		return event.OwnedObject{}, err
	}
	target := gate.Target{Environ: s.run.Cluster.Options.Environ}
	if target.Kubeconfig, err = os.ReadFile(s.run.Cluster.Dir.Kubeconfig()); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return event.OwnedObject{}, err
	}
	question, err := types[i].New(a.Exists.Type, target, values)
	if err != nil {
		return event.OwnedObject{}, err
	}
	there, err := question.Lookup(ctx, nil)
	object := event.OwnedObject{Kind: question.Object.Kind, ID: question.Object.ID, Gone: !there}
	if there {
		object.Reason, object.Fix = "still there", question.Object.Fix
	}
	return object, err
}

// noteUnverified notes objects that Terraform reports as deleted and castle cannot look up.
func (s *stageDestruction) noteUnverified(addresses []string, asked map[string]bool) {
	r := s.destruction.receipt
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range s.stage.state.Resources {
		if slices.Contains(addresses, res.Address) && !asked[res.Address] && !proxmox.Owns(res.Type) &&
			!recovery.InStateOnly(res.Provider) &&
			!recovery.InMachines(res.Provider) {
			r.unverified = append(r.unverified, s.stage.Record.Name+": "+res.Address)
		}
	}
}

// verify checks which objects of the stage still exist: in the datacenter, by the recorded preflights, and
// in the state. An object that cannot be checked does not count as gone.
func (s *stageDestruction) verify(ctx context.Context) error {
	st, err := s.dir.State()
	if err != nil {
		return err
	}
	s.stage.state = st
	owned, err := cluster.Owned(s.dir)
	if err != nil {
		return err
	}
	objects, err := s.verifyOwned(ctx, proxmox.Merge(owned, proxmox.OwnedBy(cluster.Known(st))...))
	if err != nil {
		return err
	}
	err = s.inspectRecorded(ctx, func(_ string, f gate.Inspection) {
		if slices.ContainsFunc(
			objects,
			func(t event.OwnedObject) bool { return t.Kind == proxmox.Machine && !t.Gone },
		) {
			return // it says the same
		}
		if objects = append(objects, f.Proof...); len(f.Proof) > 0 {
			return
		}
		for _, what := range f.Present {
			objects = append(
				objects,
				event.OwnedObject{
					Kind:   "machine",
					ID:     what,
					Reason: "still there",
					Fix:    "remove it in Proxmox",
				},
			)
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && every(objects, func(t event.OwnedObject) bool { return t.Gone }) {
		objects = append(
			objects,
			event.OwnedObject{
				Kind:   "machines",
				ID:     "of stage " + s.stage.Record.Name,
				Reason: "not proved: " + err.Error(),
			},
		)
	}
	if !s.stage.EndsWithCluster {
		for _, res := range cluster.Known(st) {
			objects = append(objects,
				event.OwnedObject{Kind: "resource", ID: res.Address, Reason: "Terraform has it in its state"})
		}
	}
	return s.destruction.receipt.note(s.stage.Record.Name, objects)
}

// verifyOwned looks the stage's machines, disks and files up in the datacenter.
func (s *stageDestruction) verifyOwned(
	ctx context.Context,
	owned []proxmox.Owned,
) (objects []event.OwnedObject, err error) {
	if len(owned) == 0 {
		return nil, nil
	}
	client, err := s.destruction.datacenter(s.stage)
	if err != nil {
		return []event.OwnedObject{
			{
				Kind:   "stage",
				ID:     s.stage.Record.Name,
				Reason: "what it had in Proxmox is not proved gone: " + err.Error(),
			},
		}, nil
	}
	err = s.run.Step(s.stage.Record.Name, s.stage.Record.Layer, "proof", func() error {
		objects, err = proxmox.Search{Client: client}.Gone(ctx, owned, s.run.Notice)
		return err
	})
	return objects, err
}

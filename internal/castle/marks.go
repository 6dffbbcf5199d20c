package castle

import (
	"context"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
)

// A machine's id is given to another one when it is gone, and the state does not
// notice: it has no more than the id, and perhaps an address that was chosen. So
// castle keeps, beside the state, by which each machine can be told from every
// other, as it was seen after the last apply.

func marksNote(dir *state.Stage) state.Document[[]gate.MachineID] {
	return state.StageDocument[[]gate.MachineID](dir, "machines")
}

// marksOf reads what was noted of a stage's things; nothing if nothing was.
func marksOf(dir *state.Stage) ([]gate.MachineID, error) { return marksNote(dir).Value() }

func markOf(marks []gate.MachineID, address string) gate.MachineID {
	i := slices.IndexFunc(marks, func(m gate.MachineID) bool { return m.Address == address })
	if i < 0 {
		return gate.MachineID{}
	}
	return marks[i]
}

// mark notes what a stage's preflights see of the things in its state. That they
// cannot be asked is no reason to fail: the state alone has to do then.
func (r *creation) mark(ctx context.Context, s *config.Stage) {
	marked := slices.ContainsFunc(s.Preflights, func(p *config.Preflight) bool { return p.Type.HasMachineIDs })
	if !marked || ctx.Err() != nil {
		return
	}
	if err := r.noteMarks(ctx, s); err != nil {
		r.notice(fmt.Sprintf("%s: cannot note which machines these are: %v", s.Name, err))
	}
}

func (r *creation) noteMarks(ctx context.Context, s *config.Stage) error {
	dir := r.dir.Stage(s.Name)
	before, err := marksOf(dir)
	if err != nil {
		return err
	}
	var marks []gate.MachineID
	for _, p := range s.Preflights {
		if !p.Type.HasMachineIDs {
			continue
		}
		findings, err := r.inspect(ctx, s, p)
		if err != nil {
			return err
		}
		marks = append(marks, findings.MachineIDs...)
	}
	for _, old := range before { // of one that is not what it was, too
		if markOf(marks, old.Address) == (gate.MachineID{}) {
			marks = append(marks, old)
		}
	}
	if len(marks) == 0 {
		return nil
	}
	return marksNote(dir).Write(marks)
}

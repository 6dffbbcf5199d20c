package create

import (
	"context"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
)

// mark notes what a stage's preflights see of the things in its state. That they
// cannot be asked is no reason to fail: the state alone has to do then.
func (r *creation) noteMachineIDs(ctx context.Context, s *config.Stage) {
	marked := slices.ContainsFunc(s.Preflights, func(p *config.Preflight) bool { return p.Type.HasMachineIDs })
	if !marked || ctx.Err() != nil {
		return
	}
	if err := r.writeMachineIDs(ctx, s); err != nil {
		r.run.Notice(fmt.Sprintf("%s: cannot note which machines these are: %v", s.Name, err))
	}
}

func (r *creation) writeMachineIDs(ctx context.Context, s *config.Stage) error {
	dir := r.run.Cluster.Dir.Stage(s.Name)
	before, err := cluster.MachineIDs(dir)
	if err != nil {
		return err
	}
	var marks []gate.MachineID
	for _, p := range s.Preflights {
		if !p.Type.HasMachineIDs {
			continue
		}
		findings, err := run.Inspect(ctx, r.run, s, p)
		if err != nil {
			return err
		}
		marks = append(marks, findings.MachineIDs...)
	}
	for _, old := range before { // of one that is not what it was, too
		if cluster.MachineIDOf(marks, old.Address) == (gate.MachineID{}) {
			marks = append(marks, old)
		}
	}
	if len(marks) == 0 {
		return nil
	}
	return cluster.MachineIDsNote(dir).Write(marks)
}

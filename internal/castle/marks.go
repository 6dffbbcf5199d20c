package castle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
)

// A machine's id is given to another one when it is gone, and the state does not
// notice: it has no more than the id, and perhaps an address that was chosen. So
// castle keeps, beside the state, by which each machine can be told from every
// other, as it was seen after the last apply.

func marksPath(dir *state.Stage) string { return filepath.Join(dir.Dir(), "machines.json") }

// marksOf reads what was noted of a stage's things; nothing if nothing was.
func marksOf(dir *state.Stage) ([]gate.Mark, error) {
	data, err := os.ReadFile(marksPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var marks []gate.Mark
	if err := json.Unmarshal(data, &marks); err != nil {
		return nil, fmt.Errorf("%s: %w", marksPath(dir), err)
	}
	return marks, nil
}

func markOf(marks []gate.Mark, address string) gate.Mark {
	i := slices.IndexFunc(marks, func(m gate.Mark) bool { return m.Address == address })
	if i < 0 {
		return gate.Mark{}
	}
	return marks[i]
}

// clearMarks forgets what was noted, as has to be done before anything is replaced.
func clearMarks(dir *state.Stage) error {
	if err := os.Remove(marksPath(dir)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// mark notes what a stage's preflights see of the things in its state. That they
// cannot be asked is no reason to fail: the state alone has to do then.
func (r *creation) mark(ctx context.Context, s *config.Stage) {
	if len(s.Preflights) == 0 || ctx.Err() != nil {
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
	var marks []gate.Mark
	for _, p := range s.Preflights {
		findings, err := r.inspect(ctx, s, p)
		if err != nil {
			return err
		}
		marks = append(marks, findings.Marks...)
	}
	for _, old := range before { // of one that is not what it was, too
		if markOf(marks, old.Address) == (gate.Mark{}) {
			marks = append(marks, old)
		}
	}
	if len(marks) == 0 {
		return nil
	}
	data, err := json.MarshalIndent(marks, "", "  ")
	if err != nil {
		return err
	}
	return state.WriteFile(marksPath(dir), append(data, '\n'))
}

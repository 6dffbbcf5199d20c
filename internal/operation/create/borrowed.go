package create

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// borrow records a file that exists before the stage uses it, unless a stage of this state directory has made
// it: two people may create clusters of the same name, whose files have the same names.
func (a *attempt) borrow(own gate.Own) error {
	borrowed := cluster.Borrowed(a.dir)
	ids, err := borrowed.Value()
	if err != nil || !own.Borrowed || slices.Contains(ids, own.Import.ID) {
		return err
	}
	names, err := a.run.Cluster.Dir.Stages()
	if err != nil {
		return err
	}
	for _, name := range names {
		dir := a.run.Cluster.Dir.Stage(name)
		others, err := cluster.Borrowed(dir).Value()
		if err != nil {
			return err
		}
		st, err := dir.LastKnown()
		if err != nil {
			return err
		}
		made := func(k gate.Known) bool { return cluster.Platforms().FileID(k) == own.Import.ID }
		if slices.ContainsFunc(cluster.Known(st), made) && !slices.Contains(others, own.Import.ID) {
			return nil
		}
	}
	a.run.Notice(fmt.Sprintf("%s: %s exists already; the stage uses it, and a destroy leaves it",
		a.stage.Name, own.Import.What))
	return borrowed.Write(append(ids, own.Import.ID))
}

// keepBorrowed refuses a plan that would delete or replace borrowed files. It untracks them, so that the next
// try plans without them.
func (a *attempt) keepBorrowed(ctx context.Context) error {
	st, err := a.run.ReadState(a.dir)
	if err != nil {
		return err
	}
	lost, err := cluster.BorrowedFiles(a.dir, st)
	lost = slices.DeleteFunc(lost, func(address string) bool {
		return !slices.ContainsFunc(a.plan.Changes, func(c terraform.Change) bool {
			return c.Address == address && (c.Action == "replace" || c.Action == "delete")
		})
	})
	if err != nil || len(lost) == 0 {
		return err
	}
	what := "not made by this stage, so Terraform must not delete it: " + strings.Join(lost, ", ")
	return errors.Join(&outdatedError{what}, a.work.Root.Untrack(ctx, lost))
}

// forgetBorrowed removes from the record of borrowed files those that a plan makes anew.
func forgetBorrowed(dir *state.Stage, objects []terraform.Object) error {
	ids, err := cluster.Borrowed(dir).Value()
	if err != nil || len(ids) == 0 {
		return err
	}
	return cluster.Borrowed(dir).Write(slices.DeleteFunc(ids, func(id string) bool {
		return slices.ContainsFunc(objects, func(o terraform.Object) bool {
			return o.ID == id && o.Action != "update"
		})
	}))
}

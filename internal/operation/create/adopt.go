package create

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// answerTime bounds how long an adoption waits for an answer: long enough for a machine to start.
const answerTime = 5 * time.Minute

// founds reports whether a stage bootstraps etcd, if there is none.
func founds(s *config.Stage) bool {
	return slices.ContainsFunc(s.Adopts, func(a *config.Adopt) bool {
		return a.Exists != nil && a.Exists.Type.Name == talos.ExistsBootstrapped
	})
}

// checkEtcd refuses to wait for an etcd that nobody would found: the state says that it was founded, and the
// control planes, whose machines are new by the record, say that they have no data.
func (a *attempt) checkEtcd(ctx context.Context, before *state.State) error {
	founded := func(adopt *config.Adopt) bool { return before.Has(adopt.Address) }
	if a.creation.found != nil || !founds(a.stage) || !slices.ContainsFunc(a.stage.Adopts, founded) {
		return nil
	}
	all := a.run.Outputs.ControlPlanes()
	for _, m := range all {
		isNew := func(address string) bool { key, _ := terraform.KeyOf(address); return key == m.Name }
		if !slices.ContainsFunc(a.outdated, isNew) {
			return nil
		}
	}
	// A killed apply records no machine, though etcd may run there. Those of this run cannot have any.
	lookups, err := waiting.Adoptions(a.run, a.stage, &state.State{}, "")
	for _, one := range lookups {
		if there, unknown := exists(ctx, a.run, a.stage, one); there || unknown != nil {
			return unknown
		}
	}
	if err != nil || len(all) == 0 {
		return err
	}
	return &run.RefusedError{Refused: "stage " + a.stage.Name + " was not applied",
		Reasons: []string{"etcd's data is gone with the former machines of all control planes"},
		Fix: fmt.Sprintf("with a backup: %s --backup newest; without one: %s",
			a.run.Cluster.Command("restore"), a.run.Cluster.Command("recreate"))}
}

// adopt imports existing objects that the stage's state lacks, such as a secret of an earlier cluster of this
// name. It runs after the preflights' imports: the imported machines may tell which objects exist.
func (a *attempt) adopt(ctx context.Context) error {
	st, err := a.run.ReadState(a.dir)
	if err != nil {
		return err
	}
	founded := ""
	if a.creation.found != nil {
		founded = talos.ExistsBootstrapped
	}
	all, err := waiting.Adoptions(a.run, a.stage, st, founded)
	if err == nil && len(all) > 0 {
		err = a.dir.Intent().BeginImport(a.run.ID)
	}
	if err != nil {
		return err
	}
	for _, one := range all {
		found := true
		err := a.work.Step("adopt", func() (err error) {
			if found, err = exists(ctx, a.run, a.stage, one); err != nil || !found {
				return err
			}
			if err = a.work.Root.Import(ctx, one.Address, one.ID); errors.Is(err, terraform.ErrNoSuchObject) {
				found, err = false, nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("adopt %s: %w", one.Address, err)
		}
		if found {
			a.adopted = append(a.adopted, one.Address)
			a.work.ReportImport(one.Address, "it exists already")
		}
	}
	return nil
}

// exists checks whether an adoption has anything to import, until there is an answer, an error that lasts, or
// no time left. Without a lookup the import finds out.
func exists(ctx context.Context, r *run.Run, s *config.Stage, one waiting.Adoption) (there bool, err error) {
	if one.Lookup == nil {
		return true, nil
	}
	g := gate.Gate{Name: one.Name, Check: func(ctx context.Context) (err error) {
		there, err = one.Lookup(ctx)
		return err
	}}
	policy := one.Policy
	if policy.Timeout == 0 {
		policy.Timeout = answerTime
	}
	err = gate.Wait(ctx, g, policy, gate.Listener{Answer: func(unknown error) {
		if unknown != nil {
			r.Notice(fmt.Sprintf("%s: adopt %s waits for an answer: %v", s.Name, one.Address, unknown))
		}
	}})
	if err == nil || ctx.Err() != nil {
		return there, err
	}
	if late := new(gate.TimeoutError); errors.As(err, &late) {
		return false, fmt.Errorf("exists %s: no answer within %s: %w", one.Name, late.Timeout, late.Last)
	}
	err = fmt.Errorf("exists %s: %w", one.Name, errors.Unwrap(err))
	if errors.Is(err, talos.ErrOtherSecrets) {
		err = fmt.Errorf("%w; if a copy of the state that holds them is left, bring it back: %s; "+
			"if none is, build the machines anew: %s",
			err, r.Cluster.Command("state show"), r.Cluster.Command("recreate"))
	}
	return false, err
}

// keepAdopted refuses a plan that would delete or replace a newly adopted object. It untracks the object
// again, so that the next run refuses the plan too.
func (a *attempt) keepAdopted(ctx context.Context) error {
	var lost []string
	for _, c := range a.plan.Changes {
		if slices.Contains(a.adopted, c.Address) && (c.Action == "replace" || c.Action == "delete") {
			lost = append(lost, c.Address)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	err := fmt.Errorf("adopt %s: what exists differs so much from what the stage describes that Terraform "+
		"would delete it and make it anew; nothing was changed. Correct the id in its adopt block, or the "+
		"stage; or delete the object if nobody needs it", strings.Join(lost, ", "))
	return errors.Join(err, a.work.Root.Untrack(ctx, lost))
}

// checkNothingToAdopt makes sure that nothing is to be adopted that the saved plan would make anew, and that
// nothing was imported before it.
func (a *attempt) checkNothingToAdopt(ctx context.Context) error {
	if a.before.SHA256 != a.approved.before.SHA256 {
		return a.creation.saved.stale("something of it was imported first")
	}
	all, err := waiting.Adoptions(a.run, a.stage, a.before, "")
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.Lookup == nil {
			continue
		}
		there, err := exists(ctx, a.run, a.stage, one)
		if err != nil {
			return fmt.Errorf("adopt %s: %w", one.Address, err)
		}
		if there {
			return a.creation.saved.stale(one.Address + ": it exists by now, and is to be adopted")
		}
	}
	return nil
}

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

// keepBorrowed refuses a plan that would delete or replace borrowed files. It untracks them for the next try.
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
	return errors.Join(&transientError{errors.New(what)}, a.work.Root.Untrack(ctx, lost))
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

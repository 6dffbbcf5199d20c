package applied

import (
	"context"
	"errors"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// CleanUp repairs files that a power cut or somebody has damaged, and removes the oldest runs, in every run.
func CleanUp(r *run.Run) error {
	if err := repair(r); err != nil {
		return err
	}
	tidy(r)
	return nil
}

// tidy removes the oldest runs from the state directory. It only reports a failure: a destroy must go on.
func tidy(r *run.Run) {
	all, err := state.Archives(r.Cluster.Dir)
	archived, unread := stripped(all)
	_, failed := prune(r.Cluster, r.ID, archived, r.Cluster.Config.Runs)
	if err = errors.Join(err, unread, failed); err != nil {
		r.Notice("the state directory could not be tidied: " + err.Error())
	}
}

// stripped returns the archived stages without those that a nuke kept whole: their objects may exist still.
func stripped(all []state.Archived) (archived []state.Archived, err error) {
	for _, a := range all {
		whole, unread := a.Whole()
		if err = errors.Join(err, unread); !whole && unread == nil {
			archived = append(archived, a)
		}
	}
	return archived, err
}

// Prune removes the runs, and their archived stages, beyond the newest ones. It keeps older ones that castle
// reads again. It takes the cluster's lock, and returns the ids of the runs that it removed.
func Prune(ctx context.Context, c *cluster.Cluster, keep int, notice func(string)) (
	removed []string, err error) {
	id := c.Dir.NewRun("prune").ID
	ctx, lock, err := run.TakeLock(ctx, c.Dir, c.Copy, id, notice)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = c.MaskError(errors.Join(err, lock.Release(ctx, "the removal of old runs", c.Config.Snapshots)))
	}()
	all, err := state.Archives(c.Dir)
	if err != nil {
		return nil, err
	}
	archived, _ := stripped(all) //nolint:errcheck // what cannot be read stays
	return prune(c, id, archived, keep)
}

// prune is Prune within the current run.
func prune(c *cluster.Cluster, current string, archived []state.Archived, keep int) (
	removed []string, err error) {
	runs, err := c.Dir.Runs()
	if err != nil {
		return nil, err
	}
	ids := slices.Clone(runs)
	for _, a := range archived { // a nuke has no folder of its own
		ids = append(ids, a.Run)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !state.IsRunID(id) })
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if keep == 0 || len(ids) <= keep {
		return nil, nil
	}
	needed, err := neededRuns(c, current, runs)
	if err != nil {
		return nil, err
	}
	for _, id := range ids[:len(ids)-keep] {
		if needed[id] {
			continue
		}
		for _, a := range archived {
			if a.Run == id {
				err = errors.Join(err, c.Dir.Remove(a.Path))
			}
		}
		err = errors.Join(err, c.Dir.Run(id).Remove())
		removed = append(removed, id)
	}
	return removed, err
}

// neededRuns returns the runs that castle reads again, however old they are: unfinished ones, the last one
// that worked on a stage that is not ready, and the one that measured the durations of the graph.
func neededRuns(c *cluster.Cluster, current string, newestFirst []string) (map[string]bool, error) {
	dir := c.Dir
	proof, unread := dir.Proofs().Read()
	recreation, err := dir.Recreation().Value()
	names, unlisted := dir.Stages()
	err = errors.Join(unread, err, unlisted)
	needed := map[string]bool{current: true, recreation.Run: true}
	if proof != nil {
		needed[proof.Run] = true
	}
	var unready []string
	for _, name := range names {
		intent, unread := dir.Stage(name).Intent().Read()
		fingerprint, lost := dir.Stage(name).Fingerprint().Read()
		if err = errors.Join(err, unread, lost); intent != nil {
			needed[intent.Run] = true
		}
		if fingerprint == nil {
			unready = append(unready, name)
		}
	}
	measured := false
	for _, id := range newestFirst {
		events, unread := dir.Run(id).Events()
		if unread != nil {
			continue // it has none, or a power cut has damaged them
		}
		unready = slices.DeleteFunc(unready, func(name string) bool {
			worked := slices.ContainsFunc(events, func(e event.Event) bool {
				return e.Stage == name && (e.Kind == event.StageStarted || e.Kind == event.StageFailed)
			})
			needed[id] = needed[id] || worked
			return worked
		})
		if !measured && history.Create(dir.Run(id), c.Config.Stages) != nil {
			measured, needed[id] = true, true
		}
		if measured && len(unready) == 0 {
			break
		}
	}
	return needed, err
}

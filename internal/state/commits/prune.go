package commits

import (
	"context"
	"maps"
	"path"
	"slices"
	"time"
)

// zombies is how long a commit stays by which a lock was taken over.
const zombies = 7 * 24 * time.Hour

// Prune removes old commits, and the objects that no commit names any more. It keeps the last commit of each
// of the newest runs, so many, and all commits of the newest run. Runs that only read, such as plans, are
// counted apart; if the newest one is of these, no commit of the others is removed. The error is a
// *ConflictError if head is not the newest commit any more.
//
// It lists the objects before it makes sure that head is the newest commit. A writer uploads objects only
// once it has taken the lock by a commit. So each object of the list was there before any later holder wrote
// one, and later commits name, of the older objects, only those of head. So even a Prune that was stopped
// for hours and goes on removes nothing that a commit names.
//
// Commits go first, and objects only when all those are gone: a Prune that is killed leaves objects that no
// commit names, which the next one removes, but no commit without its objects. A reader of a commit that
// goes meanwhile misses an object, and reads the head again.
func (l *Log) Prune(ctx context.Context, head *Commit, runs int, reads func(run string) bool) error {
	objects, err := l.store.List(ctx, l.prefix("objects"))
	if err != nil {
		return err
	}
	sequences, err := l.sequences(ctx)
	if err != nil {
		return err
	}
	if len(sequences) == 0 || sequences[len(sequences)-1] != head.Sequence {
		return l.conflict(ctx, head)
	}
	all, err := l.readAll(ctx, sequences, func(ctx context.Context, n int64) (*Commit, error) {
		return readBrief(ctx, l, n)
	})
	if err != nil {
		return err
	}
	old, live := sift(all, max(runs, 1), reads)
	err = each(ctx, old, func(ctx context.Context, sequence int64) error {
		l.mine.Delete(sequence)
		return l.store.Delete(ctx, l.key(sequence))
	})
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(key string) bool { return live[path.Base(key)] })
	return each(ctx, objects, l.store.Delete)
}

// brief returns of a commit what Prune needs: a long run appends thousands, each with hundreds of files.
func brief(c *Commit) *Commit {
	b := &Commit{Sequence: c.Sequence, Time: c.Time, Run: c.Run, Over: c.Over, Files: map[string]File{}}
	for _, f := range c.Files {
		b.Files[f.Object] = File{Object: f.Object}
	}
	return b
}

// readBrief returns a commit as brief does, without a request for one that this value appended.
func readBrief(ctx context.Context, l *Log, sequence int64) (*Commit, error) {
	if c, is := l.mine.Load(sequence); is {
		return c.(*Commit), nil
	}
	c, err := l.read(ctx, sequence)
	if err != nil {
		return nil, err
	}
	return brief(c), nil
}

// sift returns the numbers of the commits to remove, the oldest first, and the objects that the others name.
func sift(all []*Commit, runs int, reads func(run string) bool) (old []int64, live map[string]bool) {
	slices.SortFunc(all, func(a, b *Commit) int { return int(b.Sequence - a.Sequence) })
	seen, live := map[string]bool{}, map[string]bool{}
	left := map[bool]int{true: runs, false: runs} // by whether they only read
	for i, c := range all {
		only := reads(c.Run)
		keep := i == 0 || c.Run == all[0].Run || !seen[c.Run] && left[only] > 0 || reads(all[0].Run) && !only
		if keep {
			if !seen[c.Run] {
				left[only]--
			}
			seen[c.Run] = true
			for f := range maps.Values(c.Files) {
				live[f.Object] = true
			}
		} else if c.Over == "" || Elapsed(c.Time) > zombies {
			old = append(old, c.Sequence)
		}
	}
	slices.Sort(old)
	return old, live
}

package share

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
)

// Restoration describes the changes of a restore.
type Restoration struct {
	Commit *commits.Commit // that it goes back to
	Stages []StageChange   // of all stages, sorted
	Same   bool            // the state is the one of the commit already
	// Damaged is why the newest commit cannot be read; nil: it can.
	Damaged *commits.DamagedError

	head *commits.Commit // that the user has seen
}

// StageChange is a stage's state now and after the restore, in words: "serial 3".
type StageChange struct{ Stage, Now, Then string }

// PrepareRestore returns the changes that Restore would make; it changes nothing.
func PrepareRestore(ctx context.Context, c *cluster.Cluster, number int64) (*Restoration, error) {
	log, err := logOf(c)
	if err != nil {
		return nil, err
	}
	head, err := log.Head(ctx)
	if err != nil {
		return nil, err
	}
	commit, err := log.Read(ctx, number)
	if head == nil || errors.Is(err, fs.ErrNotExist) {
		return nil, cluster.Usagef("%s has no commit %d in %s; `%s` lists them", c.Name(), number, log.URL(),
			c.Command("state log"))
	}
	if err != nil {
		return nil, err
	}
	if head.Moved != "" {
		return nil, movedError(c, log.URL(), head)
	}
	re := &Restoration{Commit: commit, head: head}
	present, now, err := read(ctx, log, head)
	if errors.As(err, &re.Damaged) {
		now, err = map[string]string{}, nil
		for name := range head.Files {
			if parts := strings.Split(name, "/"); len(parts) == 3 && parts[0] == "stages" {
				now[parts[1]] = "unreadable"
			}
		}
	}
	if err != nil {
		return nil, err
	}
	earlier, then, err := read(ctx, log, commit)
	if err != nil {
		return nil, err
	}
	re.Same = re.Damaged == nil && maps.EqualFunc(present, earlier, bytes.Equal)
	all := maps.Clone(then)
	maps.Copy(all, now)
	for _, stage := range slices.Sorted(maps.Keys(all)) {
		re.Stages = append(re.Stages, StageChange{stage, now[stage], then[stage]})
	}
	return re, nil
}

// read returns the contents of a commit, and describes the states of its stages.
func read(ctx context.Context, log *commits.Log, c *commits.Commit,
) (contents map[string][]byte, stages map[string]string, err error) {
	if err = log.CheckFiles(ctx, c); err == nil {
		contents, err = log.Download(ctx, c)
	}
	if err != nil {
		return nil, nil, err
	}
	stages = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		parts := strings.Split(name, "/")
		if len(parts) != 3 || parts[0] != "stages" {
			continue
		}
		switch parts[2] {
		case "record.json":
			stages[parts[1]] = "no state"
		case "terraform.tfstate": // after the record
			var st struct{ Serial uint64 }
			stages[parts[1]] = "unreadable"
			if json.Unmarshal(contents[name], &st) == nil {
				stages[parts[1]] = fmt.Sprintf("serial %d", st.Serial)
			}
		}
	}
	return contents, stages, nil
}

// Restore commits the state of an earlier commit anew, under both locks, unless the state has changed since
// PrepareRestore. It returns the new commit.
func Restore(ctx context.Context, c *cluster.Cluster, re *Restoration, notice func(string),
) (restored *commits.Commit, err error) {
	err = locked(ctx, c, "restore", notice, func(run string) (err error) {
		take, what := c.Copy.Take, fmt.Sprintf("restored commit %d", re.Commit.Sequence)
		if re.Damaged != nil {
			take = func(ctx context.Context, run string, notice func(string)) (*workingcopy.Held, error) {
				return workingcopy.TakeRestored(ctx, c.Copy, run, re.Commit, what, notice)
			}
		}
		held, err := take(ctx, run, notice)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release(ctx, c, held, "the end of the restore")) }()
		if restored = held.Head(); re.Damaged != nil {
			return nil
		}
		if !maps.Equal(held.Head().Files, re.head.Files) {
			return cluster.Usagef("%s: another run has changed the state meanwhile; nothing was done, "+
				"look again", c.Name())
		}
		err = held.Restore(ctx, re.Commit, what)
		restored = held.Head()
		return err
	})
	return restored, err
}

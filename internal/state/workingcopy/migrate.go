package workingcopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// Import appends a commit of all files of a state directory, for a migration. The caller holds the
// directory's own lock. moved is the commit's Moved.
func Import(
	ctx context.Context, dir *state.Dir, log *commits.Log, after *commits.Commit, w commits.Writer,
	what, moved string,
) (*commits.Commit, error) {
	now, contents, err := scan(ctx, dir.Path(), nil)
	if err != nil {
		return nil, err
	}
	next := commits.Commit{Run: w.Run, Host: w.Host, User: w.User, Castle: w.Castle, What: what, Moved: moved}
	if after == nil {
		after, err = log.Append(ctx, nil, next) // objects without a commit would be damage
	}
	if err == nil && len(after.Files) == 0 {
		err = log.Mark(ctx)
	}
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(contents))
	data := make([][]byte, len(names))
	for i, name := range names {
		if data[i] = contents[name]; halfWritten(name, data[i]) && len(data[i]) > 0 {
			return nil, fmt.Errorf("%s/%s is not valid JSON: Terraform was killed while it wrote the state; "+
				"run castle once more on this machine, which restores it, and migrate then", dir.Path(), name)
		}
	}
	places, err := log.Upload(ctx, data)
	if err != nil {
		return nil, err
	}
	next.Files = map[string]commits.File{}
	for i, name := range names {
		places[i].Mode = now[name].Stat.Mode
		next.Files[name] = places[i]
	}
	return log.Append(ctx, after, next)
}

// Attach makes a state directory the working copy of a log at a commit that has the same files. It reads all
// of them from the store and compares. The caller holds the directory's own lock.
func Attach(ctx context.Context, dir *state.Dir, log *commits.Log, at *commits.Commit) error {
	now, contents, err := scan(ctx, dir.Path(), nil)
	if err != nil {
		return err
	}
	stored, err := log.Download(ctx, at)
	if err != nil {
		return err
	}
	all := maps.Clone(contents)
	maps.Copy(all, stored)
	if err := everyFile(dir.Path(), "", func(name string) { all[name] = nil }); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		here, is := contents[name]
		there, stays := stored[name]
		if !is || !stays || !bytes.Equal(here, there) || now[name].Stat.Mode != at.Files[name].Mode {
			return fmt.Errorf("%s: commit %d of %s differs from %s: %s", log.URL(), at.Sequence,
				dir.Cluster(), dir.Path(), name)
		}
	}
	return (&record{URL: log.URL(), Commit: at, Files: now}).save(dir)
}

// everyFile names the files below a folder without list, so that what list misses is not taken for compared.
func everyFile(dir, folder string, do func(name string)) error {
	entries, err := ownfile.ReadDir(filepath.Join(dir, folder))
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		switch {
		case skipped(name):
		case e.IsDir():
			err = errors.Join(err, everyFile(dir, name, do))
		default:
			do(name)
		}
	}
	return err
}

// Detach makes a working copy a state directory of its own again. The caller holds the directory's own lock.
func Detach(dir *state.Dir) error {
	err := ownfile.Remove(recordPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(dir.Path()))
}

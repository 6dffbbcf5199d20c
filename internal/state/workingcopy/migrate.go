package workingcopy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/siderolabs/gen/xslices"

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
	for name, content := range contents {
		if halfWritten(name, content) && len(content) > 0 {
			return nil, fmt.Errorf("%s/%s is not valid JSON: Terraform was killed while it wrote the state; "+
				"run castle once more on this machine, which restores it, and migrate then", dir.Path(), name)
		}
	}
	mode := func(name string) fs.FileMode { return now[name].Stat.Mode }
	if next.Files, err = upload(ctx, log, contents, mode); err != nil {
		return nil, err
	}
	return log.Append(ctx, after, next)
}

// upload stores contents and returns the files of a commit that has them.
func upload(ctx context.Context, log *commits.Log, contents map[string][]byte,
	mode func(name string) fs.FileMode) (map[string]commits.File, error) {
	names := slices.Sorted(maps.Keys(contents))
	places, err := log.Upload(ctx, xslices.Map(names, func(name string) []byte { return contents[name] }))
	if err != nil {
		return nil, err
	}
	files := map[string]commits.File{}
	for i, name := range names {
		places[i].Mode = mode(name)
		files[name] = places[i]
	}
	return files, nil
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

// Place is where the state of a directory's cluster lives, whatever the configuration says.
type Place struct {
	URL    string // of the store whose working copy the directory is; empty: none
	Commit string // the ID of the commit that the directory was brought to
	Own    bool   // the directory holds a state of its own
}

// Where reads the place from the directory. It makes no request.
func Where(dir *state.Dir) (Place, error) {
	r, err := load(dir)
	switch {
	case err != nil:
		return Place{}, err
	case r == nil:
		own, err := hasOwn(dir)
		return Place{Own: own}, err
	case r.Commit == nil:
		return Place{URL: r.URL}, nil
	}
	return Place{URL: r.URL, Commit: r.Commit.ID}, nil
}

// Head returns the newest commit of the holder.
func (h *Held) Head() *commits.Commit {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.head
}

// Follow makes the working copy of a log that has moved the working copy of the log that it moved to. The
// next checkout brings it to the newest commit there.
func Follow(dir *state.Dir, log *commits.Log) error {
	r, err := load(dir)
	if err != nil || r == nil || r.URL == log.URL() {
		return err
	}
	r.URL, r.Commit, r.Run = log.URL(), nil, ""
	return r.save(dir)
}

// Leave releases the lock and marks the log as moved elsewhere, unless the state has changed since a commit.
func (h *Held) Leave(ctx context.Context, since *commits.Commit, to string) error {
	h.end()
	h.last = true
	changed := false
	err := persistently(ctx, h, "nothing was moved", func(ctx context.Context) error {
		return h.append(ctx, func(next *commits.Commit) bool {
			changed = !maps.Equal(next.Files, since.Files)
			next.What, next.Moved = "moved to "+to, to
			return !changed
		})
	})
	if err == nil && changed {
		err = fmt.Errorf("cluster %s: the state in %s has changed meanwhile: give the same command again",
			h.copy.dir.Cluster(), h.copy.dir.Path())
	}
	return err
}

// Restore commits the files of an earlier commit, whose contents it stores anew, and brings the directory to
// them. An interrupted restore leaves the old commit or the new one. what describes the commit.
func (h *Held) Restore(ctx context.Context, earlier *commits.Commit, what string) error {
	return h.ask(ctx, request{do: func(ctx context.Context) error { return restore(ctx, h, earlier, what) }})
}

func restore(ctx context.Context, h *Held, earlier *commits.Commit, what string) (err error) {
	c, r := h.copy, h.record
	contents, err := c.log.Download(ctx, earlier)
	if err != nil {
		return err
	}
	if err := state.CheckLayout(c.dir, contents[layoutFile]); err != nil {
		return err
	}
	mode := func(name string) fs.FileMode { return earlier.Files[name].Mode }
	files, err := upload(ctx, c.log, contents, mode)
	if err != nil {
		return err
	}
	// With pending files, a directory that a crash leaves before the commit is not taken for newer.
	r.Pending = map[string]string{}
	for name := range r.Files {
		r.Pending[name] = ""
	}
	for name, content := range contents {
		r.Pending[name] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	if err := r.save(c.dir); err != nil {
		return err
	}
	err = h.append(ctx, func(next *commits.Commit) bool {
		next.What, next.Files = what, files
		return true
	})
	if err != nil {
		return err
	}
	unlock, err := c.lockCheckout(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	now, _, err := scan(ctx, c.dir.Path(), r.Files)
	if err != nil {
		return err
	}
	return c.apply(ctx, r, now, h.Head())
}

package workingcopy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

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

// Leave releases the lock and marks the log as moved to another place, unless the state has changed since a
// commit.
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
	names := slices.Sorted(maps.Keys(contents))
	data := make([][]byte, len(names))
	for i, name := range names {
		data[i] = contents[name]
	}
	if err := state.CheckLayout(c.dir, contents[layoutFile]); err != nil {
		return err
	}
	places, err := c.log.Upload(ctx, data)
	if err != nil {
		return err
	}
	// With pending files, a directory that a crash leaves before the commit is not taken for newer.
	files := map[string]commits.File{}
	r.Pending = map[string]string{}
	for name := range r.Files {
		r.Pending[name] = ""
	}
	for i, name := range names {
		places[i].Mode = earlier.Files[name].Mode
		files[name], r.Pending[name] = places[i], fmt.Sprintf("%x", sha256.Sum256(data[i]))
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

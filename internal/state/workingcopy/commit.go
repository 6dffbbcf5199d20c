package workingcopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/store"
)

// append appends a commit with the files of the last one and what change changes, if that returns true. It
// finds out whether the lock is lost.
func (h *Held) append(ctx context.Context, change func(*commits.Commit) bool) error {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return h.unanswered(ctx)
	}
	if lost := h.Cause(); lost != nil {
		return lost
	}
	next := h.copy.next(h.run, "", h.lock)
	if next.Files = h.head.Files; h.last {
		next.Lock = nil
	}
	if !change(&next) {
		return nil
	}
	begun := time.Now()
	c, err := h.copy.log.Append(ctx, h.head, next)
	h.mu.Lock()
	defer h.mu.Unlock()
	if conflict, is := errors.AsType[*commits.ConflictError](err); is {
		h.cause = &LostError{Cluster: h.copy.dir.Cluster(), Dir: h.copy.dir.Path(), Run: h.run,
			At: conflict.Head}
		if conflict.Head.Lock != nil {
			h.cause.By = *conflict.Head.Lock
		}
		close(h.lost)
		return h.cause
	}
	if h.failed = err; err != nil {
		return err
	}
	h.head, h.appended = c, begun
	if h.away {
		h.away = false
		go h.notice("castle commits again: the store is back")
	}
	return nil
}

// unanswered returns why a commit had to wait for longer than it could: for the answer to another one.
func (h *Held) unanswered(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	if h.failed != nil {
		return h.failed
	}
	return &store.Error{URL: h.copy.log.URL(), Op: "create", Key: h.copy.dir.Cluster() + "/log/",
		Kind: store.Away, Err: errors.New("no answer to the last commit")}
}

// commit commits what has changed. A caller who waits gets a commit even without a change, unless the last
// one is young: only that proves that the lock is not lost.
func (h *Held) commit(ctx context.Context, what string, wait bool) error {
	c, r := h.copy, h.record
	if !wait && !h.due() {
		return nil
	}
	now, contents, removed, err := c.scan(ctx, r.Files)
	if err != nil {
		return err
	}
	// A run that was suspended for long must not even store an object, once another one has the lock.
	if err := h.append(ctx, func(next *commits.Commit) bool {
		next.What, next.Lock = "sign of life", h.lock
		return commits.Elapsed(h.appended) >= h.lock.Lasts
	}); err != nil {
		return err
	}
	if err := c.restoreMissing(ctx, h.Head(), now, removed, h.notice); err != nil {
		return err
	}
	files, err := h.changedFiles(ctx, now, contents)
	if err != nil {
		return err
	}
	appended := false
	err = h.append(ctx, func(next *commits.Commit) bool {
		appended = files != nil || h.last || wait && commits.Elapsed(h.appended) > h.lock.Lasts/4
		if next.What = what; files != nil {
			if next.Files = files; what == "" {
				next.What = "changed: " + describe(contents)
			}
		}
		return appended
	})
	if err != nil {
		return err
	}
	if r.Files = now; appended {
		clear(h.stored)
		r.Commit = h.Head()
		err = r.save(c.dir)
	}
	return errors.Join(err, c.dir.Committed(removed))
}

// due reports whether something has changed that a commit should have soon.
func (h *Held) due() bool {
	files, err := list(h.copy.dir.Path())
	if err != nil {
		return true // the scan reports it
	}
	h.mu.Lock()
	logs := commits.Elapsed(h.appended) > logInterval
	h.mu.Unlock()
	for name, s := range files {
		if e, known := h.record.Files[name]; (!known || !e.unchanged(s)) && (logs || !relaxed(name)) {
			return true
		}
	}
	for name := range h.record.Files {
		if _, there := files[name]; !there && (logs || !relaxed(name)) {
			return true
		}
	}
	return false
}

// changedFiles stores the contents that the last commit lacks, and returns the files of the next one; nil if
// nothing has changed. It corrects now where the last commit keeps a file.
func (h *Held) changedFiles(
	ctx context.Context, now map[string]entry, contents map[string][]byte,
) (map[string]commits.File, error) {
	h.mu.Lock()
	last := h.head.Files
	h.mu.Unlock()
	known := maps.Clone(h.stored)
	for name, e := range h.record.Files {
		if f, is := last[name]; is {
			known[e.SHA256] = f
		}
	}
	for name, data := range contents {
		if halfWritten(name, data) {
			if was, is := h.record.Files[name]; is {
				now[name] = was
			} else {
				delete(now, name)
			}
			delete(contents, name)
		}
	}
	if err := h.store(ctx, now, contents, known); err != nil {
		return nil, err
	}
	files, changed := map[string]commits.File{}, len(now) != len(last)
	for name, e := range now {
		f := known[e.SHA256]
		f.Mode = e.Stat.Mode
		if was, is := h.record.Files[name]; is && was.same(e) && last[name].Object != "" {
			f = last[name]
		}
		if f.Object == "" {
			return nil, fmt.Errorf("%s: castle has no place for it in the store", h.copy.path(name))
		}
		files[name] = f
		changed = changed || last[name] != f
	}
	if !changed {
		return nil, nil
	}
	return files, nil
}

// store stores the contents that are not yet known, as one object, and adds them to known.
func (h *Held) store(
	ctx context.Context, now map[string]entry, contents map[string][]byte, known map[string]commits.File,
) error {
	var hashes []string
	var data [][]byte
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		hash := now[name].SHA256
		if _, is := known[hash]; !is && !slices.Contains(hashes, hash) {
			hashes, data = append(hashes, hash), append(data, contents[name])
		}
	}
	files, err := h.copy.log.Upload(ctx, data)
	if err != nil {
		return err
	}
	for i, hash := range hashes {
		known[hash], h.stored[hash] = files[i], files[i]
	}
	return nil
}

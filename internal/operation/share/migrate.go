package share

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
)

// Local is the target that means the state directory of this machine.
const Local = "local"

// Migration describes what Migrate did.
type Migration struct {
	From, To string // places; both the same if there was nothing to do
	Store    string // the URL of the store that has the state now; empty: the state directory has it
	Files    int
	Bytes    int64
}

// migration is one call of Migrate. Never two places are valid, whenever it is interrupted:
//
//  1. The target gets a copy that is marked as moved to the source. It is read back and compared.
//  2. The source is marked as moved to the target: a store by a commit, a directory by becoming a working
//     copy.
//  3. The mark of the target is removed; a working copy becomes a directory of its own.
//
// Before 2 the source is valid; after it the same command does 3.
type migration struct {
	c        *cluster.Cluster
	place    workingcopy.Place
	from, to *commits.Log // nil: the state directory
	writer   commits.Writer
	notice   func(string)
	open     func(ctx context.Context, url string) (*commits.Log, error)
	stores   []*cluster.StateStore // that open has opened
}

// Migrate moves the state of a cluster to the store at a URL, or to the state directory of this machine. It
// also completes a migration that was interrupted.
func Migrate(ctx context.Context, c *cluster.Cluster, to string, notice func(string),
) (done *Migration, err error) {
	m := &migration{c: c, notice: notice}
	m.open = m.openStore
	defer func() {
		for _, s := range m.stores {
			err = errors.Join(err, s.Close())
		}
	}()
	return m.migrate(ctx, to)
}

func (m *migration) migrate(ctx context.Context, to string) (done *Migration, err error) {
	switch {
	case to == Local && m.c.Store.InMemory():
		return nil, cluster.Usagef("castle.hcl keeps the working copy in memory, and the next restart of " +
			"this machine would lose the state; write working_copy = \"disk\" before you move it here")
	case to != Local:
		if m.to, err = m.open(ctx, to); err != nil {
			return nil, err
		}
	}
	err = locked(ctx, m.c, "migrate", m.notice, func(run string) (err error) {
		if err = m.findSource(ctx); err != nil {
			return err
		}
		m.writer.Run = run
		done, err = m.move(ctx)
		return err
	})
	return done, err
}

// openStore opens the cluster's log in the store at a URL.
func (m *migration) openStore(ctx context.Context, url string) (*commits.Log, error) {
	s, err := cluster.OpenStoreAt(ctx, m.c.Options, url)
	if err != nil {
		return nil, err
	}
	m.stores, m.writer = append(m.stores, s), s.Writer
	return s.Log(m.c.Name())
}

// findSource finds where the state is, whatever castle.hcl says by now.
func (m *migration) findSource(ctx context.Context) (err error) {
	if m.place, err = workingcopy.Where(m.c.Dir); err != nil {
		return err
	}
	switch {
	case m.place.URL != "":
		m.from, err = m.open(ctx, m.place.URL)
		return err
	case m.place.Own:
		return m.checkAlone(ctx)
	case m.c.Store == nil:
		return cluster.Usagef("%s has no state in %s, and castle.hcl names no store: there is nothing to "+
			"migrate\n  with `state { store = … }` in castle.hcl, the first create writes into the store",
			m.c.Name(), m.c.Dir.Path())
	}
	m.writer = m.c.Store.Writer
	m.from, err = m.c.Store.Log(m.c.Name())
	return err
}

// checkAlone refuses to choose between a state in the directory and one in the configured store.
func (m *migration) checkAlone(ctx context.Context) error {
	if m.c.Store == nil || m.to != nil && m.c.Store.Store.URL() == m.to.URL() {
		return nil
	}
	log, err := m.c.Store.Log(m.c.Name())
	if err != nil {
		return err
	}
	head, err := log.Head(ctx)
	if err == nil && head != nil && head.Moved == "" {
		err = cluster.Usagef("both %s and %s hold a state of %s: move the directory away if it is old, "+
			"or unset the store in castle.hcl and CASTLE_STATE_STORE to migrate the directory",
			m.c.Dir.Path(), log.URL(), m.c.Name())
	}
	return err
}

func (m *migration) nameOf(log *commits.Log) string {
	if log == nil {
		return here(m.c)
	}
	return log.URL()
}

func (m *migration) move(ctx context.Context) (*Migration, error) {
	var source, target *commits.Commit
	var err error
	if m.from != nil {
		if source, err = m.from.Head(ctx); err != nil {
			return nil, err
		}
		if source == nil {
			return nil, cluster.Usagef("%s has no state in %s: there is nothing to migrate", m.c.Name(),
				m.from.URL())
		}
	}
	if m.to != nil {
		if target, err = m.to.Head(ctx); err != nil {
			return nil, err
		}
	}
	from, to := m.nameOf(m.from), m.nameOf(m.to)
	switch {
	case from == to && source != nil && source.Moved == here(m.c) && source.ID == m.place.Commit:
		return m.validate(ctx, target) // interrupted after the directory had become a working copy
	case source != nil && source.Moved == to && m.to == nil:
		return m.detach(source)
	case source != nil && source.Moved == to && target != nil && target.Moved == from:
		return m.validate(ctx, target)
	case source != nil && source.Moved == to && target != nil && target.Moved == "":
		return &Migration{From: to, To: to, Store: to}, workingcopy.Follow(m.c.Dir, m.to)
	case source != nil && source.Moved != "":
		return nil, movedError(m.c, from, source)
	case from == to:
		return &Migration{From: from, To: to, Store: m.storeURL()}, nil
	case target != nil && target.Moved == "":
		return nil, cluster.Usagef("%s already holds a state of %s: commit %d of %s by %s@%s\n  choose "+
			"another prefix with --to; or, to work with that state, set it in castle.hcl and move %s away",
			to, m.c.Name(), target.Sequence, target.Time.Local().Format(time.DateTime), target.User,
			target.Host, m.c.Dir.Path())
	case m.from == nil:
		copied, err := m.copyTo(ctx, target)
		if err == nil {
			err = workingcopy.Attach(ctx, m.c.Dir, m.to, copied) // it compares, too
		}
		if err != nil {
			return nil, err
		}
		return m.validate(ctx, copied)
	}
	return m.leaveStore(ctx, target)
}

// leaveStore moves the state from a store, under its lock.
func (m *migration) leaveStore(ctx context.Context, target *commits.Commit) (_ *Migration, err error) {
	wc, err := workingcopy.Open(m.c.Dir, m.from, m.writer)
	if err != nil {
		return nil, err
	}
	lasts, err := workingcopy.LockTime(m.c.Options.Environ)
	if err != nil {
		return nil, err
	}
	wc.SetLockTime(lasts)
	held, err := wc.Take(ctx, m.writer.Run, m.notice)
	if err != nil {
		return nil, err
	}
	moved := false
	defer func() {
		if !moved {
			err = errors.Join(err, release(ctx, m.c, held, "migration interrupted"))
		}
	}()
	last := held.Head()
	if m.to == nil {
		err = workingcopy.Attach(ctx, m.c.Dir, m.from, last) // it compares
	} else if target, err = m.copyTo(ctx, target); err == nil {
		err = m.compare(ctx, last, target)
	}
	if err != nil {
		return nil, err
	}
	if err := held.Leave(ctx, last, m.nameOf(m.to)); err != nil {
		return nil, err
	}
	moved = true
	if m.to == nil {
		return m.detach(last)
	}
	return m.validate(ctx, target)
}

// copyTo commits the files of the directory to the target, marked as moved to the source.
func (m *migration) copyTo(ctx context.Context, after *commits.Commit) (*commits.Commit, error) {
	if text := commits.InClear(m.to); text != "" {
		m.notice(text)
	}
	from := m.nameOf(m.from)
	return workingcopy.Import(ctx, m.c.Dir, m.to, after, m.writer, "copied from "+from, from)
}

// compare reads all files of both stores and compares them byte for byte.
func (m *migration) compare(ctx context.Context, last, copied *commits.Commit) error {
	want, err := m.from.Download(ctx, last)
	if err != nil {
		return err
	}
	read, err := m.to.Download(ctx, copied)
	if err != nil {
		return err
	}
	if maps.EqualFunc(want, read, bytes.Equal) {
		return nil
	}
	return fmt.Errorf("%s: commit %d is not what was written; %s is still valid: give the same command again",
		m.to.URL(), copied.Sequence, m.from.URL())
}

// validate makes the copy in the target valid. The source is marked already.
func (m *migration) validate(ctx context.Context, copied *commits.Commit) (*Migration, error) {
	next := commits.Commit{
		Run: m.writer.Run, Host: m.writer.Host, User: m.writer.User, Castle: m.writer.Castle,
		What: "moved from " + copied.Moved, Files: copied.Files,
	}
	if _, err := m.to.Append(ctx, copied, next); err != nil {
		return nil, err
	}
	return &Migration{
		From: copied.Moved, To: m.to.URL(), Store: m.to.URL(), Files: len(copied.Files),
		Bytes: size(copied.Files),
	}, workingcopy.Follow(m.c.Dir, m.to)
}

// detach makes the working copy a directory of its own.
func (m *migration) detach(last *commits.Commit) (*Migration, error) {
	return &Migration{
		From: m.from.URL(), To: here(m.c), Files: len(last.Files), Bytes: size(last.Files),
	}, workingcopy.Detach(m.c.Dir)
}

func (m *migration) storeURL() string {
	if m.to == nil {
		return ""
	}
	return m.to.URL()
}

// movedError reports that the state of a cluster has left a store.
func movedError(c *cluster.Cluster, from string, head *commits.Commit) error {
	return cluster.Usagef("the state of %s has moved from %s to %s (%s by %s@%s)\n  migrate it from there",
		c.Name(), from, head.Moved, head.Time.Local().Format(time.DateTime), head.User, head.Host)
}

package workingcopy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// lockCheckout waits until no other castle of this machine changes the directory by a checkout. A run keeps
// its own lock longer; a checkout must not.
func (c *Copy) lockCheckout(ctx context.Context) (unlock func() error, err error) {
	return atomicfile.Lock(ctx, filepath.Join(c.dir.Path(), checkoutLock))
}

// Checkout brings the directory to the newest commit, for a command that only reads. It leaves the directory
// as it is while a run of this machine holds its lock, or while it has changes that the log lacks and the log
// has not gone on. Notices describe that. If the log has gone on, it keeps such changes aside.
func (c *Copy) Checkout(ctx context.Context) (notices []string, err error) {
	unlock, err := c.lockCheckout(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if run := c.dir.Holder(); run != nil {
		return []string{fmt.Sprintf("run %s works here now: castle reads what it has so far", run.Run)}, nil
	}
	r, err := load(c.dir)
	if err != nil {
		return nil, err
	}
	if r != nil && r.Commit != nil {
		c.log.Remember(r.Commit)
	}
	first := r == nil
	for range 5 {
		head, err := c.head(ctx, r)
		if err != nil || head == nil {
			return notices, err
		}
		more, err := c.bring(ctx, r, head)
		notices = append(notices, more...)
		if text := commits.InClear(c.log); text != "" && first && err == nil {
			notices = append(notices, text)
		}
		// A run may have removed the commit meanwhile, and its objects.
		if !errors.Is(err, fs.ErrNotExist) || isHead(ctx, c, head) {
			return notices, err
		}
		if r, err = load(c.dir); err != nil {
			return notices, err
		}
	}
	return notices, fmt.Errorf("%s: %s: runs remove commits faster than castle can read them",
		c.log.URL(), c.dir.Cluster())
}

func isHead(ctx context.Context, c *Copy, head *commits.Commit) bool {
	now, err := c.log.Head(ctx)
	return err != nil || now != nil && now.ID == head.ID
}

// bring brings the directory to the head for a reader.
func (c *Copy) bring(ctx context.Context, r *record, head *commits.Commit) (notices []string, err error) {
	if r == nil {
		r = &record{URL: c.log.URL(), Files: map[string]entry{}}
	}
	now, contents, removed, err := c.scan(ctx, r.Files)
	if err == nil {
		err = c.log.CheckFiles(ctx, head)
	}
	if err != nil {
		return nil, err
	}
	if r.leads(head) {
		notice := func(text string) { notices = append(notices, text) }
		if err := c.restoreMissing(ctx, head, now, removed, notice); err != nil {
			return notices, err
		}
	}
	changed := c.changes(r, now)
	if len(changed) > 0 && r.leads(head) {
		return append(notices, fmt.Sprintf("%s has changes that %s lacks (%s): the next run on this machine "+
			"commits them", c.dir.Path(), c.log.URL(), describe(changed))), nil
	}
	if r.at(head) && len(r.Pending) == 0 {
		return notices, nil
	}
	kept, err := c.keepAside(r, head, changed, contents)
	if notices = append(notices, kept...); err != nil {
		return notices, err
	}
	return notices, errors.Join(c.apply(ctx, r, now, head), c.dir.Committed(removed))
}

// changes returns the changes that the log lacks, without the layout that each castle writes.
func (c *Copy) changes(r *record, now map[string]entry) map[string]*entry {
	changed := r.changes(now)
	if _, committed := r.Files[layoutFile]; !committed {
		delete(changed, layoutFile)
	}
	return changed
}

// at reports whether the directory was brought to a commit.
func (r *record) at(head *commits.Commit) bool { return r.Commit != nil && r.Commit.ID == head.ID }

// leads reports whether the directory has all that a commit has, and may have more: it was brought to that
// commit, or the commit is one of the last run of this machine, or removes its lock.
func (r *record) leads(head *commits.Commit) bool {
	return len(r.Pending) == 0 &&
		(r.at(head) || r.Run != "" && (head.Run == r.Run || head.Run == "" && head.Over == r.Run))
}

// describe names changed files: at most three.
func describe[T any](changed map[string]T) string {
	names := slices.Sorted(maps.Keys(changed))
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:2], ", "), len(names)-2)
	}
	return strings.Join(names, ", ")
}

// keepAside copies changed files to a folder aside.
func (c *Copy) keepAside(
	r *record, head *commits.Commit, changed map[string]*entry, contents map[string][]byte,
) (notices []string, err error) {
	kept := map[string]bool{}
	to := filepath.Join(c.dir.Path(), divergedDir, time.Now().UTC().Format("20060102T150405.000000000"))
	for name, e := range changed {
		if e == nil {
			continue
		}
		data, read := contents[name]
		if !read {
			if data, err = ownfile.ReadFile(c.path(name)); err != nil {
				return nil, err
			}
		}
		if err := c.write(filepath.Join(to, filepath.FromSlash(name)), data, 0o600); err != nil {
			return nil, err
		}
		kept[name] = true
	}
	if len(kept) == 0 {
		return nil, nil
	}
	by := "another castle"
	if head.Run != "" {
		by = "run " + head.Run
	}
	since := int64(0)
	if r.Commit != nil {
		since = r.Commit.Sequence
	}
	return []string{fmt.Sprintf("this machine had changes that were never committed (%s), and %s on %s has "+
		"committed since (commit %d, this machine had %d): castle keeps the changed files in %s and goes on "+
		"from the newest commit", describe(kept), by, head.Host, head.Sequence, since, to)}, nil
}

func (c *Copy) path(name string) string { return filepath.Join(c.dir.Path(), filepath.FromSlash(name)) }

// write replaces a file and makes its folders.
func (c *Copy) write(to string, data []byte, mode fs.FileMode) error {
	if err := atomicfile.MkdirPrivate(filepath.Dir(to)); err != nil {
		return err
	}
	if err := atomicfile.Write(to, data); err != nil || mode == 0o600 {
		return err
	}
	return ownfile.Chmod(to, mode)
}

// apply brings the directory to a commit. now are its files. What is not as the record says was kept aside.
func (c *Copy) apply(ctx context.Context, r *record, now map[string]entry, target *commits.Commit) error {
	var missing []string
	next := map[string]entry{}
	if err := c.check(target); err != nil {
		return err
	}
	for name, f := range target.Files {
		was, known := r.Files[name]
		e, there := now[name]
		if known && there && e.same(was) && r.Commit != nil && r.Commit.Files[name] == f {
			next[name] = e
		} else {
			missing = append(missing, name)
		}
	}
	var contents map[string][]byte
	if len(missing) > 0 {
		var err error
		if contents, err = c.log.Download(ctx, target, missing...); err != nil {
			return err
		}
	}
	if text, changes := contents[layoutFile]; changes {
		if err := state.CheckLayout(c.dir, text); err != nil {
			return err
		}
	}
	// From here on a crash leaves some files old and some new. Neither are changes that the log lacks.
	if r.Pending == nil {
		r.Pending = map[string]string{}
	}
	for name, data := range contents {
		r.Pending[name] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	for name := range now {
		if _, stays := target.Files[name]; !stays {
			r.Pending[name] = ""
		}
	}
	if err := r.save(c.dir); err != nil {
		return err
	}
	for name, data := range contents {
		mode := target.Files[name].Mode
		if e, there := now[name]; !there || e.SHA256 != r.Pending[name] || e.Stat.Mode != mode {
			if err := c.write(c.path(name), data, mode); err != nil {
				return err
			}
		}
		var err error
		if next[name], err = c.entry(name, data); err != nil {
			return err
		}
	}
	if err := c.remove(now, target.Files); err != nil {
		return err
	}
	r.Commit, r.Files, r.Pending = target, next, nil
	return r.save(c.dir)
}

// remove removes the files that a commit lacks, and the folders that are empty then. The work directory of a
// stage goes with its last file: without a stage nobody removes it.
func (c *Copy) remove(now map[string]entry, stay map[string]commits.File) error {
	stages, left := map[string]bool{}, map[string]bool{}
	stage := func(name string) string {
		if parts := strings.SplitN(name, "/", 3); len(parts) == 3 && parts[0] == "stages" {
			return path.Join(parts[0], parts[1])
		}
		return ""
	}
	for name := range stay {
		left[stage(name)] = true
	}
	for name := range now {
		if _, stays := stay[name]; stays {
			continue
		}
		if err := ownfile.Remove(c.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if s := stage(name); s != "" && !left[s] {
			stages[s] = true
			continue
		}
		for dir := path.Dir(name); strings.Contains(dir, "/"); dir = path.Dir(dir) {
			if ownfile.Remove(c.path(dir)) != nil { // not empty
				break
			}
		}
	}
	for s := range stages {
		if err := ownfile.RemoveAll(c.path(s)); err != nil {
			return err
		}
	}
	return nil
}

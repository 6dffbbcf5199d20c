package workingcopy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// stat is what shows without reading a file that it has not changed.
type stat struct {
	Size     int64       `json:"size"`
	Modified int64       `json:"modified"` // nanoseconds
	Inode    uint64      `json:"inode"`
	Mode     fs.FileMode `json:"mode"`
}

// entry is a file with its content's hash.
type entry struct {
	Stat   stat   `json:"stat"`
	SHA256 string `json:"sha256"`
	Read   int64  `json:"read"` // when it was read
}

// same reports whether content and mode are the same.
func (e entry) same(other entry) bool {
	return e.SHA256 == other.SHA256 && e.Stat.Mode == other.Stat.Mode
}

// A file that changes right after it was read can have the same time of change: their clocks are coarse.
const coarse = 100 * time.Millisecond

func (e entry) unchanged(now stat) bool {
	return e.Stat == now && e.Read-now.Modified > int64(coarse)
}

func newStat(info fs.FileInfo) stat {
	return stat{Size: info.Size(), Modified: info.ModTime().UnixNano(),
		Inode: info.Sys().(*syscall.Stat_t).Ino, Mode: info.Mode().Perm()}
}

func statOf(path string) (stat, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return stat{}, err
	}
	return newStat(info), nil
}

// skipped reports whether a file or folder belongs to this machine alone, by its slash-separated path.
func skipped(name string) bool {
	switch name {
	case "lock", recordFile, checkoutLock, divergedDir, "removed.json", "backups":
		return true
	}
	base, parts := path.Base(name), strings.Split(name, "/")
	return atomicfile.Temporary(base) || strings.HasPrefix(name, ".removed-") || // being deleted
		len(parts) == 3 && parts[0] == "stages" && (parts[2] == "work" || strings.HasSuffix(base,
			".lock.info"))
}

// errored is the state that Terraform could not write, below a stage's folder.
const errored = "work/errored.tfstate"

// list returns the files of a state directory that a commit names, by slash-separated path. Package ownfile
// refuses links and the like: without what they stand for, a commit would lack files.
func list(dir string) (map[string]stat, error) {
	files := map[string]stat{}
	err := fs.WalkDir(ownfile.FS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		if parts := strings.Split(name, "/"); d.IsDir() && len(parts) == 2 && parts[0] == "stages" {
			if info, err := os.Lstat(filepath.Join(dir, name, errored)); err == nil {
				files[path.Join(name, errored)] = newStat(info)
			}
		}
		switch {
		case name != "." && skipped(name) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || skipped(name):
			return nil
		}
		if info, err := d.Info(); err == nil {
			files[name] = newStat(info)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	return files, err
}

// relaxed reports whether a file need not fit to the others: journals and logs, which change all the time.
func relaxed(name string) bool { return strings.HasPrefix(name, "runs/") }

// fits reports whether nothing but journals and logs has changed between two lists.
func fits(a, b map[string]stat) bool {
	for name, s := range a {
		if t, ok := b[name]; !relaxed(name) && (!ok || s != t) {
			return false
		}
	}
	for name := range b {
		if _, ok := a[name]; !relaxed(name) && !ok {
			return false
		}
	}
	return true
}

const settleInterval = 5 * time.Millisecond

// scan returns the files of a directory and the contents of those that are not as known. All files were so
// at one moment, except journals and logs: castle writes an intent before a state changes, and removes it
// after that. Read one after the other while both change, they could show neither.
func scan(ctx context.Context, dir string, known map[string]entry) (
	now map[string]entry, contents map[string][]byte, err error,
) {
	contents = map[string][]byte{}
	for seen := known; ; seen = now {
		before, err := list(dir)
		if err != nil {
			return nil, nil, err
		}
		if now, err = read(dir, before, seen, contents); err != nil {
			return nil, nil, err
		}
		after, err := list(dir)
		if err != nil {
			return nil, nil, err
		}
		if fits(before, after) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(settleInterval):
		}
	}
	maps.DeleteFunc(contents, func(name string, _ []byte) bool {
		e, there := now[name]
		return !there || e.SHA256 == known[name].SHA256
	})
	return now, contents, nil
}

// read reads the files that are not as known, and adds their contents.
func read(
	dir string, files map[string]stat, known map[string]entry, contents map[string][]byte,
) (map[string]entry, error) {
	now := map[string]entry{}
	for name, s := range files {
		if e, ok := known[name]; ok && e.unchanged(s) {
			now[name] = e
			continue
		}
		at := time.Now().UnixNano()
		data, err := ownfile.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		contents[name] = data
		now[name] = entry{Stat: s, SHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Read: at}
	}
	return now, nil
}

// halfWritten reports whether a file is a Terraform state that Terraform is writing, or was killed at.
func halfWritten(name string, data []byte) bool {
	return path.Base(name) == "terraform.tfstate" && !json.Valid(data)
}

// scan is scan at a moment when castle removes nothing. removed are the paths that it has removed.
func (c *Copy) scan(ctx context.Context, known map[string]entry) (
	now map[string]entry, contents map[string][]byte, removed []string, err error) {
	removed, err = c.dir.Removed(func() (err error) {
		now, contents, err = scan(ctx, c.dir.Path(), known)
		return err
	})
	return now, contents, removed, err
}

// restoreMissing writes the files of a commit that are missing in the directory though castle has not removed
// them, and adds them to now. Without it the next commit would delete them for all machines.
func (c *Copy) restoreMissing(
	ctx context.Context, at *commits.Commit, now map[string]entry, removed []string, notice func(string),
) error {
	if err := c.check(at); err != nil {
		return err
	}
	missing := map[string]bool{}
	for name := range at.Files {
		if _, there := now[name]; !there && !slices.ContainsFunc(removed, func(path string) bool {
			return name == path || strings.HasPrefix(name, path+"/")
		}) {
			missing[name] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	notice(fmt.Sprintf("%s lacks files that no run of castle has removed (%s): castle restores them from "+
		"commit %d of %s", c.dir.Path(), describe(missing), at.Sequence, c.log.URL()))
	contents, err := c.log.Download(ctx, at, slices.Collect(maps.Keys(missing))...)
	for name, data := range contents {
		if err == nil {
			err = c.write(c.path(name), data, at.Files[name].Mode)
		}
		if err == nil {
			now[name], err = c.entry(name, data)
		}
	}
	return err
}

// check refuses a commit with a file that stays on its machine.
func (c *Copy) check(at *commits.Commit) error {
	for name := range at.Files {
		if skipped(name) && !strings.HasSuffix(name, "/"+errored) {
			return fmt.Errorf("%s: commit %d of %s has %s, which no castle commits",
				c.log.URL(), at.Sequence, c.dir.Cluster(), name)
		}
	}
	return nil
}

// entry returns the entry of a file that has just been read or written.
func (c *Copy) entry(name string, data []byte) (entry, error) {
	info, err := statOf(c.path(name))
	return entry{Stat: info, SHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Read: time.Now().UnixNano()}, err
}

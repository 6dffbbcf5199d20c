package workingcopy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/state/commits"
)

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

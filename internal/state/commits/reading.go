package commits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/gen/xslices"
)

// Head returns the newest commit; nil if there is none. It takes one round trip if that is the one that this
// value read or wrote last, or that Remember named, else two. Callers share it: they must not change it.
func (l *Log) Head(ctx context.Context) (*Commit, error) {
	for range 5 {
		asOf := time.Now()
		seen, recheck := recheck(ctx, l)
		all, err := l.sequences(ctx)
		c := cmp.Or(recheck(), l.last())
		if err == nil {
			err = l.checkLength(slices.Max(append(all, 0)))
		}
		if err != nil || len(all) == 0 {
			return nil, err
		}
		if c == nil || c.Sequence != all[len(all)-1] {
			if c, err = l.Read(ctx, all[len(all)-1]); err == nil {
				err = checkLinks(ctx, l, seen, c, all)
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile, so there is a newer one
			continue
		}
		if err == nil {
			l.remember(c, asOf)
		}
		return c, err
	}
	return nil, fmt.Errorf("%s: %s: the newest commit was removed each time castle read it", l.URL(),
		l.cluster)
}

// Remember names a commit that was read in another process. Head reads it again, at the same time as it
// lists, to see that the store still has the same one.
func (l *Log) Remember(c *Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.recalled = c
	}
}

// recheck begins to read the commit that Remember named, and returns the function that waits for it. Without
// an answer it is nil: Head reads the newest commit then, and has the error. seen is the newest commit that
// this machine is known to have seen.
func recheck(ctx context.Context, l *Log) (seen *Commit, again func() *Commit) {
	l.mu.Lock()
	c := l.recalled
	seen = cmp.Or(l.known, c)
	l.recalled = nil
	l.mu.Unlock()
	if c == nil {
		return seen, func() *Commit { return nil }
	}
	there := make(chan *Commit, 1)
	go func() {
		c, _ := l.Read(ctx, c.Sequence) //nolint:errcheck // it is nil then
		there <- c
	}()
	return seen, func() *Commit { return <-there }
}

// Newest returns the number of the newest commit that this value has read or written; 0 if there is none.
func (l *Log) Newest() int64 {
	if c := l.last(); c != nil {
		return c.Sequence
	}
	return 0
}

func (l *Log) last() *Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

func (l *Log) remember(c *Commit, asOf time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.asOf = c, asOf
}

// CheckFiles refuses a head that names no file. Only the first run makes such commits, until it has stored
// the first files: later ones name at least the directory's layout, even after a destroy: fs.ErrNotExist.
func (l *Log) CheckFiles(ctx context.Context, head *Commit) error {
	if len(head.Files) > 0 {
		return nil
	}
	all, err := l.sequences(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(n int64) bool { return n > head.Sequence })
	before, err := l.readAll(ctx, all, func(ctx context.Context, n int64) (*Commit, error) {
		return readBrief(ctx, l, n)
	})
	with := slices.ContainsFunc(before, func(c *Commit) bool { return len(c.Files) > 0 })
	if err == nil && (with || int64(len(before)) < head.Sequence) {
		err = damaged(l, head.Sequence, l.key(head.Sequence), "",
			fmt.Errorf("it names no file: %w", fs.ErrNotExist))
	}
	return err
}

// Read returns one commit. The error matches fs.ErrNotExist if there is none, or if it was removed. It is an
// *UntrustedError for one that no signer vouches for.
func (l *Log) Read(ctx context.Context, sequence int64) (*Commit, error) {
	c, err := l.read(ctx, sequence)
	if err == nil {
		err = c.Untrusted
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// read is Read, whoever has written the commit.
func (l *Log) read(ctx context.Context, sequence int64) (*Commit, error) {
	data, err := l.store.Read(ctx, l.key(sequence))
	if err != nil {
		return nil, err
	}
	return l.decode(sequence, data)
}

// List returns all commits that the store still has with all their objects, the newest first. Some may be
// untrusted, such as those of a signer who has left.
func (l *Log) List(ctx context.Context) ([]*Commit, error) {
	objects, err := l.store.List(ctx, l.prefix("objects"))
	if err != nil {
		return nil, err
	}
	sequences, err := l.sequences(ctx)
	if err != nil {
		return nil, err
	}
	all, err := l.readAll(ctx, sequences, l.read)
	there := xslices.ToMap(objects, func(key string) (string, bool) { return path.Base(key), true })
	head := slices.Max(append(sequences, 0))
	all = slices.DeleteFunc(all, func(c *Commit) bool {
		lost := func(f File) bool { return !there[f.Object] }
		return c.Sequence < head && c.Over != "" &&
			slices.ContainsFunc(slices.Collect(maps.Values(c.Files)), lost)
	})
	slices.SortFunc(all, func(a, b *Commit) int { return cmp.Compare(b.Sequence, a.Sequence) })
	return all, err
}

// readAll reads commits, several at a time, without those that were removed meanwhile.
func (l *Log) readAll(
	ctx context.Context, sequences []int64, read func(context.Context, int64) (*Commit, error),
) (all []*Commit, err error) {
	var mu sync.Mutex
	err = each(ctx, sequences, func(ctx context.Context, sequence int64) error {
		c, err := read(ctx, sequence)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, c)
		return err
	})
	return all, err
}

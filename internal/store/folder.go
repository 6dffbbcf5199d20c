package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// leftOver is the age at which a temporary file belongs to a writer that was killed.
const leftOver = 24 * time.Hour

// errNoFolder reports that the folder of a store does not exist. castle does not create it: it would take
// the place of a share that is not mounted for an empty store.
var errNoFolder = errors.New("the folder does not exist; mount it, or create it for a new store")

// folder is a store of files. gocloud's fileblob does not serve: two writers that create a key at once may
// both succeed, and it does not flush what it writes.
type folder struct{ dir string }

func openFolder(_ context.Context, u *url.URL) (backend, error) {
	return &folder{filepath.Clean(u.Path)}, onlyParameters(u)
}

func (f *folder) close() error { return nil }

func (f *folder) path(key string) string { return filepath.Join(f.dir, filepath.FromSlash(key)) }

func (f *folder) read(ctx context.Context, key string) (value []byte, err error) {
	return within(ctx, func() ([]byte, error) {
		value, err := os.ReadFile(f.path(key))
		return value, f.missing(err)
	})
}

func (f *folder) create(ctx context.Context, key string, value []byte) error {
	_, err := within(ctx, func() (none struct{}, _ error) {
		path := f.path(key)
		if _, err := os.Lstat(path); err == nil {
			return none, fs.ErrExist
		}
		if err := f.mkdir(filepath.Dir(path)); err != nil {
			return none, err
		}
		return none, atomicfile.CreateWhole(ctx, path, value)
	})
	return err
}

// mkdir creates a folder of the store, and makes it survive a crash.
func (f *folder) mkdir(dir string) error {
	if dir == f.dir {
		_, err := os.Stat(dir)
		return f.missing(err)
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := f.mkdir(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(dir))
}

func (f *folder) list(ctx context.Context, prefix string) (map[string]int64, error) {
	return within(ctx, func() (sizes map[string]int64, err error) {
		sizes = map[string]int64{}
		if _, err := os.Stat(f.dir); err != nil {
			return nil, f.missing(err)
		}
		below := f.path(prefix[:strings.LastIndex(prefix, "/")+1])
		err = filepath.WalkDir(below, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // below, or what was deleted meanwhile
				return nil
			case err != nil || ctx.Err() != nil:
				return errors.Join(err, ctx.Err())
			case d.IsDir():
				return nil
			case strings.HasPrefix(d.Name(), "."):
				return sweep(path, d)
			}
			key := filepath.ToSlash(strings.TrimPrefix(path, f.dir+string(filepath.Separator)))
			if !strings.HasPrefix(key, prefix) {
				return nil
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil {
				sizes[key] = info.Size()
			}
			return err
		})
		return sizes, err
	})
}

// sweep removes the temporary file of a writer that was killed.
func sweep(path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil || !atomicfile.Temporary(d.Name()) || time.Since(info.ModTime()) < leftOver {
		return nil // it may be gone, or in use
	}
	if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // another castle removes it
	}
	return err
}

func (f *folder) remove(ctx context.Context, key string) error {
	_, err := within(ctx, func() (none struct{}, _ error) { return none, f.missing(os.Remove(f.path(key))) })
	return err
}

// missing tells a missing store from a missing key.
func (f *folder) missing(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(f.dir); errors.Is(err, fs.ErrNotExist) {
		return errNoFolder
	}
	return fs.ErrNotExist
}

func (f *folder) classify(err error) class {
	if errors.Is(err, errNoFolder) {
		return class{kind: Missing}
	}
	return connection(err)
}

// within returns when do does, or ctx ends: a network file system may not answer for minutes.
func within[T any](ctx context.Context, do func() (T, error)) (result T, err error) {
	done := make(chan func() (T, error), 1)
	go func() {
		value, err := do()
		done <- func() (T, error) { return value, err }
	}()
	select {
	case answer := <-done:
		return answer()
	case <-ctx.Done():
		return result, fmt.Errorf("file system: %w", context.Cause(ctx))
	}
}

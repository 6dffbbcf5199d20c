package state

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// removedFile lists what castle has removed from the working copy of a store since the last commit. What is
// missing without being listed was lost, and comes back from the store: it never becomes a deletion there.
const removedFile = "removed.json"

// Remove removes files and folders, there or not. Whatever removes something of the directory that a commit
// can name does so with Remove, Rename or Removing.
func (d *Dir) Remove(paths ...string) error {
	return d.Removing(func() (err error) {
		for _, path := range paths {
			if failed := ownfile.RemoveAll(path); !errors.Is(failed, fs.ErrNotExist) { // the folder is gone
				err = errors.Join(err, failed)
			}
		}
		return err
	}, paths...)
}

// Rename moves a file or folder to another place.
func (d *Dir) Rename(from, to string) error {
	return d.Removing(func() error { return ownfile.Rename(from, to) }, from)
}

// Removing lists the paths as removed on disk, and calls remove, which removes them. A kill in between leaves
// files that are listed, which is harmless.
func (d *Dir) Removing(remove func() error, paths ...string) error {
	d.removals.Lock()
	defer d.removals.Unlock()
	if exists(filepath.Join(d.path, "store.json")) {
		all, err := readRemoved(d)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if name, err := filepath.Rel(d.path, path); err == nil && filepath.IsLocal(name) {
				all = append(all, filepath.ToSlash(name))
			}
		}
		if err := writeRemoved(d, all); err != nil {
			return err
		}
	}
	return remove()
}

// Removed calls look while this process removes nothing, and returns the slash-separated paths that castle
// has removed by then and that Committed was not called for.
func (d *Dir) Removed(look func() error) (paths []string, err error) {
	d.removals.Lock()
	defer d.removals.Unlock()
	if err := look(); err != nil {
		return nil, err
	}
	return readRemoved(d)
}

// Committed ends the listing of paths that Removed returned: the store has a commit without them, or with the
// files that replaced them.
func (d *Dir) Committed(removed []string) error {
	if len(removed) == 0 {
		return nil
	}
	d.removals.Lock()
	defer d.removals.Unlock()
	all, err := readRemoved(d)
	if err != nil {
		return err
	}
	return writeRemoved(d, all[min(len(removed), len(all)):]) // later ones were appended
}

// readRemoved treats a damaged list as an empty one: files come back, and runs remove them again.
func readRemoved(d *Dir) (all []string, err error) {
	data, err := ownfile.ReadFile(filepath.Join(d.path, removedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && json.Unmarshal(data, &all) != nil {
		all = nil
	}
	return all, err
}

func writeRemoved(d *Dir, all []string) error {
	path := filepath.Join(d.path, removedFile)
	if len(all) == 0 {
		return ownfile.RemoveAll(path)
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return atomicfile.WritePending(path, append(data, '\n'))
}

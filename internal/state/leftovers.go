package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// removed begins the name of a stage's folder while it is being deleted.
const removed = ".removed-"

// Remove deletes everything of the stage. It leaves stages/ first, in one step, so
// that an interrupted removal never looks like a stage that has lost its state.
func (s *Stage) Remove() error {
	aside := filepath.Join(s.dir.path, removed+s.name)
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(s.Dir(), aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return errors.Join(atomicfile.SyncDir(s.dir.stages()), os.RemoveAll(aside))
}

// Leftovers returns the folders that belong to no stage: a killed run prepared them
// and never applied, or did not finish removing them. They can hold states and inputs.
func (d *Dir) Leftovers() ([]string, error) {
	aside, err := fs.Glob(os.DirFS(d.path), removed+"*")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(d.stages())
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range aside {
		all = append(all, filepath.Join(d.path, name))
	}
	for _, e := range entries {
		if !d.Stage(e.Name()).known() {
			all = append(all, filepath.Join(d.stages(), e.Name()))
		}
	}
	return all, nil
}

// RemoveLeftovers deletes them. No run may be working on the cluster.
func (d *Dir) RemoveLeftovers() error {
	all, err := d.Leftovers()
	for _, path := range all {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
)

// Proved returns what a destroy has proved that did not come to its receipt, or nil.
func (d *Dir) Proved() (*event.Receipt, error) {
	r := new(event.Receipt)
	err := readJSON(d.provedPath(), r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// SetProved keeps what a destroy has proved so far: what it forgets next cannot
// be asked for again.
func (d *Dir) SetProved(r *event.Receipt) error { return writeJSON(d.provedPath(), r) }

// ClearProved forgets it: there is a receipt, or it is true no more.
func (d *Dir) ClearProved() error {
	err := os.Remove(d.provedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(d.path))
}

func (d *Dir) provedPath() string { return filepath.Join(d.path, "proved.json") }

// Remains are folders of no stage: what a killed run had prepared for one and
// never applied, or had not wholly removed of one. States and inputs may lie there.
func (d *Dir) Remains() ([]string, error) {
	all, err := filepath.Glob(filepath.Join(d.path, removed+"*"))
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(d.stages())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !d.Stage(e.Name()).known() {
			all = append(all, filepath.Join(d.stages(), e.Name()))
		}
	}
	return all, nil
}

// RemoveRemains deletes them. No run may be at work on the cluster.
func (d *Dir) RemoveRemains() error {
	all, err := d.Remains()
	for _, path := range all {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

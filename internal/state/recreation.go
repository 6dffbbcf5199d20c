package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Recreation is a recreate that has begun and not come to its end.
type Recreation struct {
	Run    string    `json:"run"`
	Began  time.Time `json:"began"`
	Rotate bool      `json:"rotate"` // what the secrets layer made goes too
	Razed  bool      `json:"razed"`  // what was to go is gone; what stands was made since
}

// Recreation returns the recreate that has not come to its end, or nil.
func (d *Dir) Recreation() (*Recreation, error) {
	r := new(Recreation)
	err := readJSON(d.recreationPath(), r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// SetRecreation notes how far a recreate has come.
func (d *Dir) SetRecreation(r Recreation) error { return writeJSON(d.recreationPath(), r) }

// ClearRecreation forgets it: it has come to its end, or something else has
// changed the cluster as a whole.
func (d *Dir) ClearRecreation() error {
	err := os.Remove(d.recreationPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(d.path))
}

func (d *Dir) recreationPath() string { return filepath.Join(d.path, "recreate.json") }

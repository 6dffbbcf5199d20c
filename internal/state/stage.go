package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Stage is one stage's part of the state directory.
type Stage struct {
	dir  *Dir
	name string
}

// Stage returns the part of a stage, recorded or not. Nothing is made yet.
func (d *Dir) Stage(name string) *Stage { return &Stage{dir: d, name: name} }

// Dir returns the stage's directory.
func (s *Stage) Dir() string { return filepath.Join(s.dir.stages(), s.name) }

// Work returns the work directory, where Terraform runs.
func (s *Stage) Work() string { return filepath.Join(s.Dir(), "work") }

// StatePath returns the path of the Terraform state.
func (s *Stage) StatePath() string { return filepath.Join(s.Dir(), "terraform.tfstate") }

func (s *Stage) recordPath() string      { return filepath.Join(s.Dir(), "record.json") }
func (s *Stage) fingerprintPath() string { return filepath.Join(s.Dir(), "fingerprint.json") }
func (s *Stage) snapshots() string       { return filepath.Join(s.Dir(), "snapshots") }

// Archive moves everything of the stage to archive/<run>-<stage>: the stage is
// then unknown, and what it was can still be read.
func (s *Stage) Archive(run string) error {
	archive := filepath.Join(s.dir.path, "archive")
	if err := atomicfile.MkdirPrivate(archive); err != nil {
		return err
	}
	if err := os.Rename(s.Dir(), filepath.Join(archive, run+"-"+s.name)); err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncDir(archive), atomicfile.SyncDir(s.dir.stages()))
}

// removed begins the name of a stage's folder while it is being deleted.
const removed = ".removed-"

// Remove deletes everything of the stage. It leaves stages/ first, in one step,
// so that a removal cut short never looks like a stage that has lost its state.
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

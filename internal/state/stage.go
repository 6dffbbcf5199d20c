package state

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// Stage is one stage's part of the state directory.
type Stage struct {
	dir  *Dir
	name string
}

// Stage returns the part of a stage, recorded or not. It creates nothing.
func (d *Dir) Stage(name string) *Stage { return &Stage{dir: d, name: name} }

// Dir returns the stage's directory.
func (s *Stage) Dir() string { return filepath.Join(s.dir.stages(), s.name) }

// Work returns the work directory, where Terraform runs.
func (s *Stage) Work() string { return filepath.Join(s.Dir(), "work") }

// StatePath returns the path of the Terraform state.
func (s *Stage) StatePath() string { return filepath.Join(s.Dir(), stateName) }

func (s *Stage) record() Document[Record] { return StageDocument[Record](s, "record") }

// Record reads the stage's record. Without one the error is fs.ErrNotExist.
func (s *Stage) Record() (Record, error) {
	r, err := s.record().load()
	if err != nil {
		return Record{}, err
	}
	if r.Name != s.name || r.Layer == "" {
		return Record{}, damaged(s.record().path, errors.New("it names no stage and layer"))
	}
	return *r, nil
}

// LostRecord returns the error for a stage with a state and without a record.
func LostRecord(s *Stage) error { return damaged(s.record().path, errors.New("it is missing")) }

// SetRecord replaces the stage's record.
func (s *Stage) SetRecord(r Record) error { return s.record().Write(r) }

// Fingerprint is the document of the fingerprint of the stage's last good apply. It
// is removed before anything changes and written when the gates are open.
func (s *Stage) Fingerprint() Document[Fingerprint] {
	return StageDocument[Fingerprint](s, "fingerprint")
}

// known reports whether the stage has a record or a state. A run that was killed
// early can leave a state without a record.
func (s *Stage) known() bool {
	return exists(s.record().path) || exists(copyOf(s.record().path)) || exists(s.StatePath())
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// removed begins the name of a stage's folder while it is being deleted.
const removed = ".removed-"

// Remove deletes everything of the stage. It leaves stages/ first, in one step, so
// that an interrupted removal never looks like a stage that has lost its state.
func (s *Stage) Remove() error {
	aside := filepath.Join(s.dir.path, removed+s.name)
	if err := ownfile.RemoveAll(aside); err != nil {
		return err
	}
	if err := s.dir.Rename(s.Dir(), aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return errors.Join(atomicfile.SyncDir(s.dir.stages()), ownfile.RemoveAll(aside))
}

// CopyFS copies a folder's files to a new one, and the file behind a link. It adds private files of its first
// level, which replace those of the same name, and flushes all.
func CopyFS(dir string, files fs.FS, private map[string][]byte) error {
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err != nil || d.IsDir() {
			return cmp.Or(err, atomicfile.MkdirPrivate(path))
		}
		info, err := fs.Stat(files, name)
		data, unread := fs.ReadFile(files, name)
		if err = cmp.Or(err, unread); err != nil {
			return err
		}
		return atomicfile.CreateUnflushed(path, data, 0o600|info.Mode()&0o111)
	})
	for name, data := range private {
		err = cmp.Or(err, atomicfile.WriteUnflushed(filepath.Join(dir, name), data))
	}
	return cmp.Or(err, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return cmp.Or(err, atomicfile.SyncDir(path)) // a file is flushed like a folder
	}))
}

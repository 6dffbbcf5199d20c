package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Note is a small JSON file beside a stage's state, for what a later run has to
// know and the state does not say. It goes and is archived with the stage.
type Note struct{ path string }

// Note returns the note with a name such as "machines", written or not.
func (s *Stage) Note(name string) Note { return Note{filepath.Join(s.Dir(), name+".json")} }

// Read decodes the note. Without one, into stays as it is.
func (n Note) Read(into any) error {
	if err := readJSON(n.path, into); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Write replaces the note.
func (n Note) Write(v any) error { return writeJSON(n.path, v) }

// Clear removes it.
func (n Note) Clear() error {
	err := os.Remove(n.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(filepath.Dir(n.path)))
}

package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
)

// Document is a JSON file that is replaced whole.
type Document[T any] struct{ path string }

// StageDocument returns a stage's document with a name such as "machines", for facts that a later run needs
// and the state lacks. It is archived with the stage.
func StageDocument[T any](s *Stage, name string) Document[T] {
	return Document[T]{filepath.Join(s.Dir(), name+".json")}
}

// load reads the document. Without one the error is fs.ErrNotExist.
func (d Document[T]) load() (*T, error) {
	data, err := os.ReadFile(d.path)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("%s: %w", d.path, err)
	}
	return v, nil
}

// Read reads the document; nil if there is none.
func (d Document[T]) Read() (*T, error) {
	v, err := d.load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return v, err
}

// Value reads the document; the zero value if there is none.
func (d Document[T]) Value() (v T, err error) {
	read, err := d.Read()
	if read != nil {
		v = *read
	}
	return v, err
}

// Write replaces the document.
func (d Document[T]) Write(v T) error {
	data, err := json.MarshalIndent(&v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if err := atomicfile.MkdirPrivate(filepath.Dir(d.path)); err != nil {
		return err
	}
	return atomicfile.Write(d.path, append(data, '\n'))
}

// Clear removes the document.
func (d Document[T]) Clear() error { return removeFile(d.path) }

// removeFile removes a file, if there is one, and flushes its folder.
func removeFile(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(filepath.Dir(path)))
}

// Recreation is an unfinished recreate.
type Recreation struct {
	Run       string    `json:"run"`
	Began     time.Time `json:"began"`
	Rotate    bool      `json:"rotate"` // destroys what the secrets layer generated, too
	Destroyed bool      `json:"razed"`  // everything was destroyed; what exists was created since
}

// Recreation is the document of an unfinished recreate.
func (d *Dir) Recreation() Document[Recreation] {
	return Document[Recreation]{filepath.Join(d.path, "recreate.json")}
}

// Proof is the document of the objects that an unfinished destroy has proved gone: a stage that is removed
// from the state directory cannot be checked again.
func (d *Dir) Proof() Document[event.Receipt] {
	return Document[event.Receipt]{filepath.Join(d.path, "proved.json")}
}

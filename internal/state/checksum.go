package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// documents maps castle's files that end with a checksum and have a copy to the way out if both are damaged.
var documents = map[string]string{
	"record.json": "a destroy works from it, and castle rebuilds it from a valid configuration that lists " +
		"the stage: put that back, or restore the file from a backup",
	"machines.json": provesGone, "held.json": provesGone, "owned.json": provesGone,
	"borrowed.json": "a destroy leaves the files that it lists: restore it from a backup, or " +
		"delete it and its copy, and the destroy deletes them",
	"rotation.json": "castle knows by it which login roles of a database are in use: restore it " +
		"from a backup",
	"fingerprint.json": dispensable, "seen.json": dispensable, "reviewed.json": dispensable,
	"revisions.json": dispensable, "instances.json": dispensable, "recreate.json": dispensable,
	"restore.json": dispensable, "rollout.json": dispensable,
	"proved.json": dispensable,
	"births.json": "castle knows by it how the data of the cluster began: restore it from a backup, or " +
		"delete it and its copy, and castle reads it from the cluster",
}

const (
	provesGone = "a destroy knows by it what has to be gone: restore it from a backup, or delete it and " +
		"its copy and look in the datacenter for machines and disks of the stage yourself"
	dispensable = "castle can go on without it: delete it and its copy"
)

// DamagedError reports that a file of the state directory is damaged and that castle cannot rebuild it.
type DamagedError struct {
	Path   string
	Reason error
	Fix    string // what depends on the file, and how to go on
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged: %v\n  %s", e.Path, e.Reason, e.Fix)
}

func (e *DamagedError) Unwrap() error { return e.Reason }

func damaged(path string, reason error) error {
	return &DamagedError{Path: path, Reason: reason, Fix: documents[filepath.Base(path)]}
}

// seal is the last line of a document. A castle that does not know it refuses the file.
type seal struct {
	SHA256 string `json:"sha256"`
}

// Seal adds a checksum to a JSON value.
func Seal(value []byte) []byte {
	value = bytes.TrimSpace(value)
	return fmt.Appendf(nil, "%s\n{\"sha256\":\"%x\"}\n", value, sha256.Sum256(value))
}

// Unseal returns the JSON value of a file that Seal has written.
func Unseal(data []byte) (value []byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var content json.RawMessage
	if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty")
	} else if err != nil {
		return nil, err
	}
	var last seal
	switch err := decoder.Decode(&last); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it has no checksum")
	case err != nil || last.SHA256 != fmt.Sprintf("%x", sha256.Sum256(content)) || decoder.More():
		return nil, errors.New("its content does not match its checksum")
	}
	return content, nil
}

// copyOf returns the path of a document's copy. It is written before the document and removed before it: a
// crash in between leaves a document that is sound.
func copyOf(path string) string { return path + ".copy" }

// writeBoth writes a file and its copy. If there is no room for both, the previous file stays.
func writeBoth(path string, content, copied []byte, writeCopy, write func(string, []byte) error) error {
	err := atomicfile.MkdirPrivate(filepath.Dir(path))
	if err == nil {
		err = writeCopy(copyOf(path), Seal(copied))
	}
	if err != nil {
		return err
	}
	if err = write(path, content); err != nil { // a store brings the previous copy back
		err = errors.Join(err, ownfile.RemoveAll(copyOf(path)))
	}
	return err
}

// removeKept removes a document and its copy, if there are any, and flushes their folder.
func (d *Dir) removeKept(path string) error {
	there := exists(path) || exists(copyOf(path))
	err := d.Remove(copyOf(path), path)
	if there {
		err = errors.Join(err, atomicfile.SyncDir(filepath.Dir(path)))
	}
	return err
}

// readKept reads a document. If its file is damaged or deleted, the copy replaces it, and damage tells why.
func readKept(path string) (value []byte, damage, err error) {
	value, err = readSealed(path)
	if err == nil {
		return value, nil, nil
	}
	kept, copyErr := readSealed(copyOf(path))
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case copyErr == nil && missing:
		return kept, errors.New("it was missing"), nil
	case copyErr == nil && errors.As(err, new(*DamagedError)):
		return kept, errors.Unwrap(err), nil
	case missing && !errors.Is(copyErr, fs.ErrNotExist):
		err = damaged(path, errors.New("it is missing, and its copy is damaged"))
	}
	return value, nil, err
}

func readSealed(path string) (value []byte, err error) {
	data, err := ownfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if value, err = Unseal(data); err != nil {
		err = damaged(path, err)
	}
	return value, err
}

// Repair describes the damaged files that have a copy. Under the cluster's lock it restores them, and copies.
func (d *Dir) Repair() (notices []string, err error) {
	entries, err := ownfile.ReadDir(d.stages())
	if err != nil {
		return nil, err
	}
	lost := func(path string, damage error, restore func() error) {
		told := "is damaged (%v); castle reads its copy, and the next create or destroy restores it"
		if d.locked.Load() {
			told = "was damaged (%v); castle restored it from its copy"
			err = errors.Join(err, restore())
		}
		notices = append(notices, fmt.Sprintf("%s "+told, path, damage))
	}
	dirs := []string{d.path}
	for _, e := range entries {
		dirs = append(dirs, d.Stage(e.Name()).Dir())
		f := d.Stage(e.Name()).Intent()
		if intent, unread := f.Read(); unread == nil && intent != nil && intent.Damage != nil {
			lost(f.path(), intent.Damage, func() error { return f.write(intent) })
		}
	}
	for _, dir := range dirs {
		there := map[string]bool{}
		entries, _ := ownfile.ReadDir(dir) //nolint:errcheck // their readers report it
		for _, e := range entries {
			there[e.Name()] = true
		}
		for _, name := range slices.Sorted(maps.Keys(documents)) {
			path := filepath.Join(dir, name)
			if !there[name] && !there[copyOf(name)] {
				continue
			}
			value, damage, unread := readKept(path)
			// Only the document is flushed: a power cut that takes the copy leaves the document.
			restore := func() error {
				return writeBoth(path, Seal(value), value, atomicfile.WriteUnflushed, atomicfile.Write)
			}
			switch kept, uncopied := ownfile.ReadFile(copyOf(path)); {
			case unread != nil: // there is none, or its reader reports it
			case damage != nil:
				lost(path, damage, restore)
			case d.locked.Load() && (uncopied != nil || !bytes.Equal(kept, Seal(value))):
				err = errors.Join(err, restore())
			}
		}
	}
	return notices, err
}

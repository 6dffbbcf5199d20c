// Package atomicfile writes files so that a crash at any moment leaves the old content or the new one. It
// writes a temporary file, flushes and renames it, and flushes its folder too. Files and folders that can
// hold secrets get their mode before the first byte, independent of the umask.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces the file at path. Only its owner can read it.
func Write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	// Renamed before its content has reached the disk, the file could end up empty.
	if err = fill(f, data, 0o600); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// Create writes a new file with exactly this mode. A file that exists is an
// error that matches fs.ErrExist.
func Create(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return fill(f, data, mode)
}

// fill sets the mode first: a umask may have cleared even the owner's bits.
func fill(f *os.File, data []byte, mode os.FileMode) error {
	err := f.Chmod(mode)
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// Append opens a private file in a private folder for appending and creates both if need be.
func Append(path string) (*os.File, error) {
	if err := MkdirPrivate(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// MkdirPrivate creates a folder that only its owner can enter, and its parents.
// Parents that exist keep their mode.
func MkdirPrivate(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, 0o700)
}

// SyncDir flushes a folder, so that the files created, renamed or removed in it
// survive a crash.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

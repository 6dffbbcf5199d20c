package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	privateDir  = 0o700
	privateFile = 0o600
)

// WriteFile replaces the file at path by one that only its owner can read: the
// old content or the new is there at any moment, never a part of either.
func WriteFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	// A umask may have taken even the owner's bits.
	err = errors.Join(err, f.Chmod(privateFile))
	err = errors.Join(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// CopyFS copies a folder's files to a new one, as os.CopyFS does. They have
// reached the disk when it returns.
func CopyFS(dir string, files fs.FS) error {
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncDir(path) // a file is synced like a folder
	})
}

// syncDir makes what was created, renamed or removed in a folder last.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makePrivate makes a folder, and its parents, that only its owner can enter.
// Parents that are there already are left as they are.
func makePrivate(path string) error {
	if err := os.MkdirAll(path, privateDir); err != nil {
		return err
	}
	return os.Chmod(path, privateDir)
}

// openAppend opens a private file for appending.
func openAppend(path string) (*os.File, error) {
	if err := makePrivate(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, privateFile)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(privateFile); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

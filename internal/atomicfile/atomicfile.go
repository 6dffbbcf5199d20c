// Package atomicfile writes files so that a crash at any moment leaves the old content or the new one. It
// writes a temporary file, flushes and renames it, and flushes its folder too, unless a function's comment
// says otherwise. Files and folders that can hold secrets get their mode before the first byte, independent
// of the umask. What a crash leaves behind has a name that only this package makes, and Sweep removes it.
// No folder of a path may be a link (package ownfile), except that of a file of the user: WriteMode, Create.
package atomicfile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// lockInterval is how often Lock tries again.
const lockInterval = 20 * time.Millisecond

// Write replaces the file at path. Only its owner can read it.
func Write(path string, data []byte) error { return write(path, data, 0o600) }

// WriteMode replaces a file of the user, which gets exactly this mode. The folders of its path may be links.
func WriteMode(path string, data []byte, mode os.FileMode) error {
	return write(filepath.Join(ownfile.Resolve(filepath.Dir(path)), filepath.Base(path)), data, mode)
}

func write(path string, data []byte, mode os.FileMode) error {
	if err := replace(path, data, mode, (*os.File).Sync); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// WriteUnflushed is Write for a file that castle can make again and that does not count unless its content
// is right: after a power cut it may be the old one, be empty or be missing. A kill leaves the old content or
// the new one, as with Write. A flush is the most expensive part of a write.
func WriteUnflushed(path string, data []byte) error { return replace(path, data, 0o600, unflushed) }

// Update is WriteUnflushed for a file that rarely changes: one that has this content and mode stays as it is.
func Update(path string, data []byte) error {
	if info, err := os.Lstat(path); err == nil && info.Mode() == 0o600 && info.Size() == int64(len(data)) {
		if there, err := ownfile.ReadFile(path); err == nil && bytes.Equal(there, data) {
			return nil
		}
	}
	return WriteUnflushed(path, data)
}

// WritePending is Write without the flush of the folder: the new content is complete on disk, but until
// SyncDir or the next Write there, a power cut may bring the old content back.
func WritePending(path string, data []byte) error { return replace(path, data, 0o600, (*os.File).Sync) }

// replace replaces the file at path. Renamed before flush has brought it to the disk, it could end up empty.
func replace(path string, data []byte, mode os.FileMode, flush func(*os.File) error) error {
	once := func(path string) error { return replaceOnce(path, data, mode, flush) }
	err := ownfile.In(path, once)
	if errors.Is(err, fs.ErrNotExist) { // another castle may have swept the temporary file
		err = ownfile.In(path, once)
	}
	return err
}

func replaceOnce(path string, data []byte, mode os.FileMode, flush func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), temporaryName(filepath.Base(path)))
	if err != nil {
		return err
	}
	if err = fill(f, data, mode, flush); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

func unflushed(*os.File) error { return nil }

// Create writes a new file with exactly this mode, flushed. A file that exists is an
// error that matches fs.ErrExist.
func Create(path string, data []byte, mode os.FileMode) error {
	return create(path, data, mode, (*os.File).Sync)
}

// CreateUnflushed is Create without the flush, with the same risk as WriteUnflushed.
func CreateUnflushed(path string, data []byte, mode os.FileMode) error {
	return ownfile.In(path, func(path string) error { return create(path, data, mode, unflushed) })
}

func create(path string, data []byte, mode os.FileMode, flush func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err := fill(f, data, mode, flush); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// MkdirTemp creates a temporary folder in dir, which only its owner can enter. The caller removes it.
func MkdirTemp(dir, name string) (string, error) {
	return os.MkdirTemp(ownfile.Resolve(dir), temporaryName(name)) // the system's may be a link
}

// temporaryName returns the pattern of the names of temporary files: .record.json.castle-1234567890.
func temporaryName(base string) string { return "." + base + ".castle-*" }

var temporary = regexp.MustCompile(`^\..+\.castle-[0-9]+$`)

// Sweep removes the temporary files and folders that killed castles have left below dir. Nothing may work
// there except castles that only read, and write again what Sweep takes from them.
func Sweep(dir string) error {
	return filepath.WalkDir(ownfile.Resolve(dir), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // also where dir is missing
			return nil
		case err != nil || !temporary.MatchString(d.Name()):
			return err
		}
		if err = ownfile.RemoveAll(path); err == nil && d.IsDir() {
			return fs.SkipDir
		}
		return err
	})
}

// fill sets the mode first: a umask may have cleared even the owner's bits.
func fill(f *os.File, data []byte, mode os.FileMode, flush func(*os.File) error) error {
	err := f.Chmod(mode)
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, flush(f), f.Close())
}

// Append opens a private file in a private folder for appending and creates both if need be.
func Append(path string) (*os.File, error) {
	if err := MkdirPrivate(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := ownfile.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// MkdirPrivate creates a folder that only its owner can enter, and its parents.
// Parents that exist keep their mode. It changes nothing if all is so already: the disk may be read-only.
func MkdirPrivate(path string) error {
	err := ownfile.Chmod(path+"/", 0o700) // the slash refuses a file
	if errors.Is(err, fs.ErrNotExist) {
		create := func(path string) error { return os.Mkdir(path, 0o700) }
		if err = ownfile.In(path, create); errors.Is(err, fs.ErrNotExist) {
			err = cmp.Or(MkdirPrivate(filepath.Dir(path)), ownfile.In(path, create))
		}
		if err == nil || errors.Is(err, fs.ErrExist) { // by another castle
			err = ownfile.Chmod(path+"/", 0o700)
		}
	}
	return err
}

// SyncDir flushes a folder, so that the files created, renamed or removed in it survive a crash.
func SyncDir(path string) error {
	d, err := os.OpenFile(path, unix.O_NONBLOCK, 0) // a pipe would block
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// CreateWhole creates a file that appears with all of its content or not at all. Only its owner can read it.
// Of several writers at once, on several machines too, one succeeds; the others get an error that matches
// fs.ErrExist. Nothing appears once ctx has ended. The file system must have hard links.
func CreateWhole(ctx context.Context, path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), temporaryName(filepath.Base(path)))
	if err != nil {
		return err
	}
	if err = fill(f, data, 0o600, (*os.File).Sync); err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Temporary reports whether a file's name is that of a temporary file of this package.
func Temporary(name string) bool { return temporary.MatchString(name) }

// Lock waits until this process alone holds the lock on a file and returns its release function. The
// kernel releases it too when the process ends.
func Lock(ctx context.Context, path string) (unlock func() error, err error) {
	if err := MkdirPrivate(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := ownfile.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(lockInterval):
		}
	}
}

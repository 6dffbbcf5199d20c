// Package ownfile reads and changes what lies below castle's state directory. Somebody may have put a link, a
// named pipe, a device or a file of another user there: as root, castle would change any file of the machine,
// or wait for ever. So no folder of a path may be a link, opening never blocks, and a file counts only if it
// is regular and belongs to the user as whom castle runs. The state directory itself, and each folder above
// it, may be a link: every path that this package gets is a result of Resolve, or lies below one.
package ownfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RefusedError reports a link, a pipe, a socket or a device.
type RefusedError struct{ Path, Kind string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is %s; below its state directory, castle uses only files and folders of its own\n"+
		"  find out who made it, and remove it or put the file or folder in its place", e.Path, e.Kind)
}

// Check refuses what is neither a file nor a folder, and what belongs to another user.
func Check(path string, info fs.FileInfo) error {
	if err := checkKind(path, info.Mode()); err != nil {
		return err
	}
	if int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		foreign := fmt.Errorf("it belongs to another user: %w", syscall.EPERM) // state.Fix explains it
		return &fs.PathError{Op: "open", Path: path, Err: foreign}
	}
	return nil
}

func checkKind(path string, mode fs.FileMode) error {
	if mode.IsRegular() || mode.IsDir() {
		return nil
	}
	names := map[fs.FileMode]string{fs.ModeSymlink: "a symbolic link", fs.ModeNamedPipe: "a named pipe"}
	return &RefusedError{path, cmp.Or(names[mode.Type()], "a device or a socket")}
}

// checkParts refuses a path of which a part is neither a file nor a folder.
func checkParts(path string) error {
	if above := filepath.Dir(path); above != path {
		if err := checkParts(above); err != nil {
			return err
		}
	}
	if info, err := os.Lstat(path); err == nil {
		return checkKind(path, info.Mode())
	}
	return nil
}

// Resolve returns an absolute path without links. Its last parts need not exist.
func Resolve(path string) string {
	path, _ = filepath.Abs(path) //nolint:errcheck // only where the working directory is gone
	if real, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return cmp.Or(real, path)
	}
	return filepath.Join(Resolve(filepath.Dir(path)), filepath.Base(path))
}

// OpenFile opens a file or folder, as os.OpenFile does.
func OpenFile(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := open(path, flag, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = Check(path, info)
	}
	if err == nil && flag&(os.O_WRONLY|os.O_RDWR) != 0 && info.Sys().(*syscall.Stat_t).Nlink > 1 {
		err = &RefusedError{path, "a hard link, and writing to it would change the same file elsewhere"}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Open opens a file or folder for reading.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// ReadFile reads a whole file.
func ReadFile(path string) ([]byte, error) {
	return fs.ReadFile(FS(filepath.Dir(path)), filepath.Base(path))
}

// Chmod sets the mode of a file or folder that has another one. The disk may be read-only.
func Chmod(path string, mode fs.FileMode) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	if info, unknown := f.Stat(); unknown != nil || info.Mode().Perm() != mode {
		err = f.Chmod(mode)
	}
	return errors.Join(err, f.Close())
}

// ReadDir reads a folder, as os.ReadDir does. It refuses one with a link, a pipe, a socket or a device.
func ReadDir(path string) ([]fs.DirEntry, error) {
	f, err := OpenFile(path, unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		err = cmp.Or(err, checkKind(filepath.Join(path, e.Name()), e.Type()))
	}
	return entries, errors.Join(err, f.Close())
}

// In calls do with another name of a path, in which the folder stays the same whatever others do meanwhile.
// do must not follow the last part, which may be a link.
func In(path string, do func(path string) error) error {
	dir := filepath.Dir(path)
	f, err := open(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written to it
	fixed := name(f)
	known := func(path string) string { return strings.Replace(path, fixed, dir, 1) }
	err = do(fixed + "/" + filepath.Base(path))
	if failed, is := errors.AsType[*fs.PathError](err); is {
		failed.Path = known(failed.Path)
	}
	if failed, is := errors.AsType[*os.LinkError](err); is {
		failed.Old, failed.New = known(failed.Old), known(failed.New)
	}
	return err
}

// Remove removes a file, an empty folder or a link.
func Remove(path string) error { return In(path, os.Remove) }

// RemoveAll removes a file, a link, or a folder with everything in it. The folder above must exist.
func RemoveAll(path string) error { return In(path, os.RemoveAll) }

// Rename moves a file or folder.
func Rename(from, to string) error {
	return In(from, func(from string) error {
		return In(to, func(to string) error { return os.Rename(from, to) })
	})
}

type tree string

// FS returns the files below a folder.
func FS(path string) fs.FS { return tree(path) }

func (t tree) Open(name string) (fs.File, error) { return Open(filepath.Join(string(t), name)) }

func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	return ReadDir(filepath.Join(string(t), name))
}

package ownfile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// open opens a path of which no part is a link.
func open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	flag |= unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOFOLLOW_ANY
	fd, err := -1, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, flag, uint32(mode))
	}
	if err != nil {
		return nil, cmp.Or(checkParts(path), error(&fs.PathError{Op: "open", Path: path, Err: err}))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// name returns the name under which a folder was opened: macOS has none that is fixed. Nobody else can put a
// link in its place where only this user can enter.
func name(dir *os.File) string { return dir.Name() }

package ownfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

var openat2 = unix.Openat2 // except in a test

// open opens a path of which no part is a link.
func open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	flag |= unix.O_CLOEXEC | unix.O_NONBLOCK
	fd, err := -1, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		fd, err = openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: uint64(flag), //nolint:gosec // positive
			Mode: uint64(mode), Resolve: unix.RESOLVE_NO_SYMLINKS})
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // Linux 5.5, or a container's filter
		// Nobody else can put a link between the two steps where only this user can enter.
		if err = checkParts(path); err == nil {
			fd, err = unix.Open(path, flag|unix.O_NOFOLLOW, uint32(mode))
		}
	}
	if err != nil {
		return nil, cmp.Or(checkParts(path), error(&fs.PathError{Op: "open", Path: path, Err: err}))
	}
	return os.NewFile(uintptr(fd), path), nil //nolint:gosec // positive
}

// name returns another name of an open folder, which stays the same whatever others do meanwhile.
func name(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", dir.Fd()) }

package state

import (
	"os"

	"golang.org/x/sys/unix"
)

// room returns how many bytes are free on a file system. castle knows none of macOS that is in memory.
func room(fsys *unix.Statfs_t) (free uint64, memory bool) {
	return fsys.Bavail * uint64(fsys.Bsize), false
}

// Swap returns no device: on macOS, UseMemory accepts no folder.
func Swap(string) []string { return nil }

// sharedFileSystem reports whether other machines can use the file, too. There the
// kernel's lock may not keep them out.
func sharedFileSystem(f *os.File) bool {
	var fsys unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fsys) != nil || fsys.Flags&unix.MNT_LOCAL == 0
}

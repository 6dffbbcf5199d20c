package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Disk describes the folder of all state directories and the disk that holds it.
type Disk struct {
	Nearest  string // the folder, or its nearest parent that exists
	Writable bool
	Free     uint64    // bytes for this user
	Exposed  []Exposed // folders that others may enter
}

// Exposed is a folder that others may enter.
type Exposed struct {
	Path string
	Mode fs.FileMode
}

// CheckDisk examines the folder of all state directories. It creates nothing.
func CheckDisk(root string) (Disk, error) {
	disk := Disk{Nearest: root}
	for {
		if _, err := os.Stat(disk.Nearest); err == nil || disk.Nearest == filepath.Dir(disk.Nearest) {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return disk, err
		}
		disk.Nearest = filepath.Dir(disk.Nearest)
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(disk.Nearest, &fsys); err != nil {
		return disk, &fs.PathError{Op: "statfs", Path: disk.Nearest, Err: err}
	}
	disk.Free = fsys.Bavail * uint64(fsys.Bsize) //nolint:gosec // a block has a size
	disk.Writable = unix.Access(disk.Nearest, unix.W_OK|unix.X_OK) == nil
	if disk.Nearest != root {
		return disk, nil
	}
	clusters, err := Clusters(root)
	if err != nil {
		return disk, err
	}
	dirs := []string{root}
	for _, c := range clusters {
		dirs = append(dirs, filepath.Dir(filepath.Join(root, c)), filepath.Join(root, c))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		info, err := os.Stat(dir)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			disk.Exposed = append(disk.Exposed, Exposed{Path: dir, Mode: info.Mode().Perm()})
		}
	}
	return disk, nil
}

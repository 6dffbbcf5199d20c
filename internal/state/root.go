package state

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/process"
)

// Root returns the folder of all clusters' state directories: flag if given,
// else CASTLE_STATE_DIR, XDG_STATE_HOME/castle or HOME/.local/state/castle of environ.
func Root(flag string, environ []string) (string, error) {
	get := func(name string) string { return process.Getenv(environ, name) }
	switch {
	case flag != "":
		return filepath.Abs(flag)
	case get("CASTLE_STATE_DIR") != "":
		return filepath.Abs(get("CASTLE_STATE_DIR"))
	case filepath.IsAbs(get("XDG_STATE_HOME")): // the specification says to ignore a relative one
		return filepath.Join(get("XDG_STATE_HOME"), "castle"), nil
	case filepath.IsAbs(get("HOME")):
		return filepath.Join(get("HOME"), ".local", "state", "castle"), nil
	}
	return "", errors.New("state directory: neither CASTLE_STATE_DIR nor HOME is set")
}

// Clusters lists the clusters that have a state directory below root, each with
// its platform: blue/proxmox. It creates nothing.
func Clusters(root string) ([]string, error) {
	layouts, err := fs.Glob(os.DirFS(root), "*/*/layout") // sorted
	for i, file := range layouts {
		layouts[i] = path.Dir(file)
	}
	return layouts, err
}

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

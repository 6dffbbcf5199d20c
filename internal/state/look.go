package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Place is what there is where the state directories are, or will be.
type Place struct {
	Nearest  string // the folder itself, or the nearest above it that exists
	Writable bool
	Free     uint64    // bytes for this user
	Exposed  []Exposed // folders that others may enter
}

// Exposed is a folder that is not for its owner alone.
type Exposed struct {
	Path string
	Mode fs.FileMode
}

// Look says what is at the root of the state directories. It makes nothing.
func Look(root string) (Place, error) {
	place := Place{Nearest: root}
	for {
		if _, err := os.Stat(place.Nearest); err == nil || place.Nearest == filepath.Dir(place.Nearest) {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return place, err
		}
		place.Nearest = filepath.Dir(place.Nearest)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(place.Nearest, &disk); err != nil {
		return place, &fs.PathError{Op: "statfs", Path: place.Nearest, Err: err}
	}
	place.Free = disk.Bavail * uint64(disk.Bsize) //nolint:gosec // a block has a size
	place.Writable = unix.Access(place.Nearest, unix.W_OK|unix.X_OK) == nil
	if place.Nearest != root {
		return place, nil
	}
	clusters, err := Clusters(root)
	if err != nil {
		return place, err
	}
	dirs := []string{root}
	for _, c := range clusters {
		dirs = append(dirs, filepath.Dir(filepath.Join(root, c)), filepath.Join(root, c))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		info, err := os.Stat(dir)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			place.Exposed = append(place.Exposed, Exposed{Path: dir, Mode: info.Mode().Perm()})
		}
	}
	return place, nil
}

package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/siderolabs/gen/xslices"
	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
)

// Root returns the folder of all clusters' state directories: flag if given,
// else CASTLE_STATE_DIR, XDG_STATE_HOME/castle or HOME/.local/state/castle of environ. It has no links.
func Root(flag string, environ []string) (string, error) {
	get := func(name string) string { return process.Getenv(environ, name) }
	switch {
	case flag != "":
		return ownfile.Resolve(flag), nil
	case get("CASTLE_STATE_DIR") != "":
		return ownfile.Resolve(get("CASTLE_STATE_DIR")), nil
	case filepath.IsAbs(get("XDG_STATE_HOME")): // the specification says to ignore a relative one
		return ownfile.Resolve(filepath.Join(get("XDG_STATE_HOME"), "castle")), nil
	case filepath.IsAbs(get("HOME")):
		return ownfile.Resolve(filepath.Join(get("HOME"), ".local", "state", "castle")), nil
	}
	return "", errors.New("state directory: neither CASTLE_STATE_DIR nor HOME is set")
}

// NotMade says what to do about a name that castle would not have chosen.
const NotMade = "castle did not make it; move it away"

// Clusters lists the clusters that have a state directory below root, each with
// its platform: blue/proxmox. It creates nothing. It leaves out folders whose names break the rule; the error
// is a *naming.Error for each.
func Clusters(root string) (clusters []string, err error) {
	entries, err := os.ReadDir(root) // not fs.Glob: it skips what it may not read
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	}
	var wrong error
	for _, e := range entries {
		name := e.Name()
		platforms, err := folder(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		for _, platform := range platforms {
			files, err := folder(filepath.Join(root, name, platform))
			if err != nil {
				return nil, err
			}
			if !slices.Contains(files, "layout") {
				continue
			}
			one := naming.Check(filepath.Join(root, name, platform), NotMade, name, platform)
			if wrong = errors.Join(wrong, one); one == nil {
				clusters = append(clusters, path.Join(name, platform))
			}
		}
	}
	return clusters, wrong
}

// Recorded lists the folders of the stages and of the runs of a cluster, "blue/proxmox", below root, the
// newest run first. It reads none of them, creates nothing, and leaves out what has no name of castle's.
func Recorded(root, cluster string) (stages, runs []string) {
	d := &Dir{path: filepath.Join(root, filepath.FromSlash(cluster))}
	stages, _ = folder(d.stages()) //nolint:errcheck // what cannot be listed is not offered
	runs, _ = folder(d.runs())     //nolint:errcheck // likewise
	slices.Reverse(runs)
	return slices.DeleteFunc(stages, func(s string) bool { return !naming.Suits(s) }),
		slices.DeleteFunc(runs, func(r string) bool { return !runID.MatchString(r) })
}

// folder returns the sorted names of the entries of a folder; none if there is no folder.
func folder(path string) (names []string, err error) {
	entries, err := ownfile.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return xslices.Map(entries, func(e fs.DirEntry) string { return e.Name() }), err
}

// Fix returns what a user can do about an error at a file below root: the disk is full or read-only, or the
// file belongs to somebody else, or a folder is none. It is empty for others, as of a datacenter's disk.
func Fix(err error, root string) string {
	if root == "" {
		return ""
	}
	path := failedPath(err)
	in, relErr := filepath.Rel(root, path)
	ours := path != "" && relErr == nil && filepath.IsLocal(in)
	is := func(number syscall.Errno) bool { return ours && errors.Is(err, number) }
	reported := func(number syscall.Errno) bool { // by Terraform
		return slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(line string) bool {
			return strings.Contains(line, number.Error()) && strings.Contains(line, root+"/")
		})
	}
	const disk, again = "the disk of the state directory %s is %s and give the same command again; ",
		"it finds what this run has made"
	switch {
	case is(syscall.ENOSPC), is(syscall.EDQUOT), reported(syscall.ENOSPC), reported(syscall.EDQUOT):
		return fmt.Sprintf(disk+again, root, "full: make room there")
	case is(syscall.EROFS), reported(syscall.EROFS):
		return fmt.Sprintf(disk+again, root, "read-only: make it writable")
	case is(syscall.EACCES), is(syscall.EPERM):
		return permissionFix(path, root)
	case is(syscall.ENOTDIR), is(syscall.EEXIST):
		return folderFix(path)
	}
	return ""
}

func failedPath(err error) string {
	if failed, is := errors.AsType[*fs.PathError](err); is {
		return failed.Path
	}
	if failed, is := errors.AsType[*os.LinkError](err); is {
		return failed.New
	}
	return ""
}

// permissionFix explains a file that castle may not use, or its nearest parent that castle can see.
func permissionFix(path, root string) string {
	info, err := os.Lstat(path)
	for ; err != nil && path != filepath.Dir(path); info, err = os.Lstat(path) {
		path = filepath.Dir(path)
	}
	if err != nil {
		return ""
	}
	name := func(uid int) string {
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			return u.Username
		}
		return fmt.Sprintf("user %d", uid)
	}
	owner, self := int(info.Sys().(*syscall.Stat_t).Uid), os.Geteuid()
	if owner == self {
		return fmt.Sprintf("castle may not use %s: chmod -R u+rwX %s", path, process.Quote(root))
	}
	return fmt.Sprintf("%s belongs to %s, and castle runs as %s: run castle as %s, or change the owner of %s",
		path, name(owner), name(self), name(owner), root)
}

// folderFix explains a path on which something else than a folder lies.
func folderFix(path string) string {
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		there, err := os.Lstat(path)
		if err != nil {
			continue
		}
		target, err := os.Stat(path)
		switch {
		case there.Mode()&fs.ModeSymlink != 0 && err != nil:
			return path + " is a link to a folder that does not exist: mount or restore that folder, " +
				"or remove the link"
		case err == nil && !target.IsDir():
			return path + " is not a folder: move it away, or choose another with --state-dir or " +
				"CASTLE_STATE_DIR"
		}
		return ""
	}
	return ""
}

// Disk describes the folder of all state directories and the disk that holds it.
type Disk struct {
	Nearest  string // the folder, or its nearest parent that exists
	Writable bool
	Memory   bool      // it is a memory file system
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
	disk.Free, disk.Memory = room(&fsys)
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
		if info, err := os.Lstat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
			disk.Exposed = append(disk.Exposed, Exposed{Path: dir, Mode: info.Mode().Perm()})
		}
	}
	return disk, nil
}

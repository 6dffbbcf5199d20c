package state

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// room returns how many bytes are free on a file system, and whether it is in memory.
func room(fsys *unix.Statfs_t) (free uint64, memory bool) {
	free = fsys.Bavail * uint64(fsys.Bsize)                                         //nolint:gosec // positive
	if info := new(unix.Sysinfo_t); fsys.Blocks == 0 && unix.Sysinfo(info) == nil { // without a limit
		free = info.Freeram * uint64(info.Unit)
	}
	return free, fsys.Type == unix.TMPFS_MAGIC || fsys.Type == unix.RAMFS_MAGIC
}

// Swap returns the swap devices to which the kernel may write what is in memory below root; none if its file
// system is never swapped. Swap that is itself in memory does not count.
func Swap(root string) []string {
	var info unix.Stat_t
	var fsys unix.Statfs_t
	if unix.Statfs(root, &fsys) == nil && fsys.Type == unix.RAMFS_MAGIC {
		return nil
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo") //nolint:errcheck // then swap counts
	if unix.Stat(root, &info) == nil && neverSwapped(string(mounts), unix.Major(info.Dev),
		unix.Minor(info.Dev)) {
		return nil
	}
	table, _ := os.ReadFile("/proc/swaps") //nolint:errcheck // a kernel without it has no swap
	return swapDevices(string(table))
}

// neverSwapped reports whether the file system of a device is mounted with noswap (Linux 6.4).
func neverSwapped(mounts string, major, minor uint32) bool {
	device := fmt.Sprintf("%d:%d", major, minor)
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line) // id parent major:minor root mount options … - type source options
		if len(fields) > 6 && fields[2] == device {
			return slices.Contains(strings.Split(fields[len(fields)-1], ","), "noswap")
		}
	}
	return false
}

// swapDevices returns the devices in the table of /proc/swaps.
func swapDevices(table string) (devices []string) {
	for line := range strings.Lines(table) {
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "\t")
		if strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "/dev/zram") { // else the title
			devices = append(devices, name)
		}
	}
	return devices
}

// sharedFileSystem reports whether other machines can use the file, too. There the
// kernel's lock may not keep them out.
func sharedFileSystem(f *os.File) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return true // if unknown
	}
	const (
		fuse   = 0x65735546
		ceph   = 0x00c36400
		lustre = 0x0bd00bd0
		gfs2   = 0x01161970
		ocfs2  = 0x7461636f
	)
	switch uint32(fs.Type) { //nolint:gosec // these are 32 bits
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
		unix.AFS_SUPER_MAGIC, unix.V9FS_MAGIC, fuse, ceph, lustre, gfs2, ocfs2:
		return true
	}
	return false
}

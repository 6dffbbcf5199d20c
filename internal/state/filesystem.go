package state

import (
	"os"

	"golang.org/x/sys/unix"
)

// sharedFileSystem reports whether other machines may hold the file, too: there
// the kernel's lock is not always everybody's.
func sharedFileSystem(f *os.File) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return true // as long as nothing else is known
	}
	const (
		fuse   = 0x65735546
		ceph   = 0x00c36400
		lustre = 0x0bd00bd0
		gfs2   = 0x01161970
		ocfs2  = 0x7461636f
	)
	switch uint32(fs.Type) { //nolint:gosec // these are 32 bits
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.AFS_SUPER_MAGIC,
		unix.V9FS_MAGIC, fuse, ceph, lustre, gfs2, ocfs2:
		return true
	}
	return false
}

package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
)

// longestRuntime leaves room in process.RuntimeDir for the folder of this user.
const longestRuntime = process.LongestTemporary - len("/castle/"+temporaryDir)

// temporaryDir is the folder below a root in memory for the temporary files of castle and its children.
const temporaryDir = ".tmp"

// MemoryRoot returns the folder of all state directories where they are kept in memory: castle in the runtime
// directory of the user's session, else one in /dev/shm.
func MemoryRoot(environ []string) string {
	session := process.Getenv(environ, "XDG_RUNTIME_DIR")
	if filepath.IsAbs(session) && len(session) <= longestRuntime {
		if disk, err := CheckDisk(session); err == nil && disk.Memory {
			return filepath.Join(ownfile.Resolve(session), "castle")
		}
	}
	return fmt.Sprintf("/dev/shm/castle-%d", os.Geteuid())
}

// MemoryTemporary returns the folder for temporary files below a root in memory.
func MemoryTemporary(root string) string { return filepath.Join(root, temporaryDir) }

// leastMemory is what a run requires: the states of a cluster, the plan of each stage, and the package of a
// provider while Terraform unpacks it.
const leastMemory = 256 << 20

// UseMemory makes root a folder of this user alone on a memory file system, with MemoryTemporary in it. It
// refuses any other file system before it creates anything.
func UseMemory(root string) error {
	if runtime.GOOS != "linux" {
		return errors.New("castle knows memory file systems on Linux alone; write working_copy = \"disk\"")
	}
	disk, err := CheckDisk(root)
	if err != nil {
		return err
	}
	const choose = "choose a folder on tmpfs or ramfs with --state-dir or CASTLE_STATE_DIR"
	switch {
	case !disk.Memory:
		return fmt.Errorf("%s is not on a memory file system; %s", root, choose)
	case disk.Free < leastMemory:
		return fmt.Errorf("%s has %d MiB free, and a run requires %d MiB; enlarge that file system, or %s",
			root, disk.Free>>20, leastMemory>>20, choose)
	case len(MemoryTemporary(root)) > process.LongestTemporary:
		return fmt.Errorf("%s is too long for the sockets of providers, which lie below it; choose a path "+
			"of at most %d characters", root, process.LongestTemporary-len("/"+temporaryDir))
	}
	// MkdirPrivate would change the mode of a folder that serves others, too.
	if info, err := os.Lstat(root); err == nil && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o, and others may have read it; choose another folder, or run "+
			"chmod 700 %s", root, info.Mode().Perm(), process.Quote(root))
	}
	return atomicfile.MkdirPrivate(MemoryTemporary(root))
}

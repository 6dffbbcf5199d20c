package process

import (
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// temporary are castle's folders among the temporary files: RuntimeDir and TempDir.
var temporary = regexp.MustCompile(`^castle-(\d{8}T\d{6}\.\d{3}-[a-z]+-[0-9a-f]{6}|[a-z]+-\d+)$`)

// claimed holds the folders that this process has locked.
var claimed sync.Map

// TempDir creates a private folder among the temporary files, and claims it. The caller removes it.
func TempDir(name string) (string, error) {
	dir, err := os.MkdirTemp("", "castle-"+name+"-*")
	if err != nil {
		return "", err
	}
	Claim(dir)
	return dir, nil
}

// Claim locks a folder of castle among the temporary files until this process ends, however it ends. It removes
// the folders of this user that nobody has locked: killed castles have left them. Where files have no locks, none
// is removed.
func Claim(dir string) {
	if _, again := claimed.LoadOrStore(dir, true); again {
		return
	}
	_, _ = lock(dir, unix.LOCK_SH)                                        // the descriptor stays open
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "castle-*")) //nolint:errcheck // of a bad pattern
	for _, other := range all {
		if temporary.MatchString(filepath.Base(other)) && other != dir {
			removeUnclaimed(other)
		}
	}
}

// removeUnclaimed removes a folder unless somebody has locked it, or may be about to. What it cannot remove, the
// next castle tries again.
func removeUnclaimed(dir string) {
	fd, err := lock(dir, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return
	}
	defer unix.Close(fd) //nolint:errcheck // it was only locked
	var info unix.Stat_t
	if unix.Fstat(fd, &info) == nil && int(info.Uid) == os.Getuid() && info.Mode&0o077 == 0 &&
		time.Since(time.Unix(info.Mtim.Unix())) > time.Minute {
		_ = os.RemoveAll(dir)
	}
}

// lock opens a folder, not through a link, and locks it. A child does not inherit the descriptor.
func lock(dir string, how int) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err = unix.Flock(fd, how); err != nil {
		_ = unix.Close(fd)
	}
	return fd, err
}

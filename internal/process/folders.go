package process

import (
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
)

// temporary matches castle's folders among the temporary files: RuntimeDir and TempDir.
var temporary = regexp.MustCompile(`^castle-(\d{8}T\d{6}\.\d{3}-[a-z]+-[0-9a-f]{6}|[a-z]+-\d+)$`)

// TempDir creates a private folder among the temporary files, and locks it. The caller removes it.
func TempDir(name string) (string, error) {
	dir, err := os.MkdirTemp("", "castle-"+name+"-*")
	if err == nil {
		Hold(dir)
	}
	return dir, err
}

// Hold locks a folder of castle among the temporary files until this process ends, however it ends. It
// removes the folders of this user that nobody has locked, or is about to: killed castles have left them.
func Hold(dir string) {
	_, _ = lock(dir, unix.LOCK_SH)                                        // the descriptor stays open
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "castle-*")) //nolint:errcheck // none then
	for _, other := range all {
		if !temporary.MatchString(filepath.Base(other)) {
			continue
		}
		fd, err := lock(other, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue
		}
		var info unix.Stat_t
		if unix.Fstat(fd, &info) == nil && int(info.Uid) == os.Getuid() && info.Mode&0o077 == 0 &&
			time.Since(time.Unix(info.Mtim.Unix())) > time.Minute {
			_ = os.RemoveAll(other) // else the next castle tries again
		}
		_ = unix.Close(fd)
	}
}

// lock opens a folder, not through a link, and locks it. A child does not inherit the descriptor.
func lock(dir string, how int) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = unix.Flock(fd, how); err != nil {
			_ = unix.Close(fd)
		}
	}
	return fd, err
}

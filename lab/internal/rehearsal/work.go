package rehearsal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/process"
)

// lockName is a file in the work directory of a rehearsal that removes the directory at its end.
// The rehearsal holds the lock while it runs.
const lockName = "rehearsal.lock"

// cacheHome is castle's folder among the user's caches.
func cacheHome(environ []string) string {
	cache := process.Getenv(environ, "XDG_CACHE_HOME")
	if home := process.Getenv(environ, "HOME"); cache == "" && home != "" {
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "castle")
}

// workDirectory is new and private. Sockets lie in it, whose paths the kernel
// limits to 107 characters.
func workDirectory(environ []string, name string) (string, error) {
	parent := filepath.Join(cacheHome(environ), "rehearsals")
	if !filepath.IsAbs(parent) || len(parent)+len(name) > 60 {
		parent = os.TempDir()
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, name+"-"+time.Now().Format("0102-1504")+"-")
}

// occupy locks a work directory until the returned file is closed. It publishes the lock file only
// once it holds the lock, so no sweep treats the directory as abandoned.
func occupy(work string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(work, lockName+".new"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, os.Rename(f.Name(), filepath.Join(work, lockName))
}

// sweep removes the work directories of killed rehearsals beside this one; each has some hundred
// megabytes. Those of --keep have no lock.
func sweep(work string, notice func(string)) {
	entries, err := os.ReadDir(filepath.Dir(work))
	if err != nil {
		return // leftovers do not prevent a rehearsal
	}
	for _, e := range entries {
		left := filepath.Join(filepath.Dir(work), e.Name())
		if left == work || !abandoned(left) {
			continue
		}
		if err := os.RemoveAll(left); err != nil {
			notice(fmt.Sprintf("cannot delete the work directory %s of a killed rehearsal: %v", left, err))
			continue
		}
		notice("deleted the work directory of a killed rehearsal: " + left)
	}
}

// abandoned reports whether no process holds a work directory's lock any more.
func abandoned(work string) bool {
	f, err := os.OpenFile(filepath.Join(work, lockName), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // nothing was written
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

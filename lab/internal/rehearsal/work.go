package rehearsal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
)

// lockName is a file in the work directory of a rehearsal that removes the directory at its end.
// The rehearsal holds the lock while it runs.
const lockName = "rehearsal.lock"

// logsName is a file in the folder that a rehearsal leaves at its end: only the files that castle has named
// are in it. The folders of the newest rehearsals stay, mostLogs of them.
const (
	logsName = "rehearsal.logs"
	mostLogs = 5
)

// logs are the names that stay in the state directory of a cluster.
var logs = []string{"runs", "kubeconfig", "talosconfig"}

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
	for _, left := range outdated(filepath.Dir(work)) {
		if err := os.RemoveAll(left); err != nil {
			notice(fmt.Sprintf("cannot delete the logs of an old rehearsal: %v", err))
		}
	}
}

// keepLogs reduces a work directory to the logs of the lab and of real controllers, and to the files of
// castle's runs, which castle has named on the terminal. Their secrets are masked.
func (p *plan) keepLogs() error {
	state := p.path("state", p.Survey.Name, p.Survey.Platform)
	keep := map[string]bool{p.path("datacenter.log"): true, p.path(lockName): true,
		p.path(datacenter.ControllerLogs): true}
	for dir := state; dir != p.Work; dir = filepath.Dir(dir) {
		keep[dir] = true
	}
	for _, name := range logs {
		keep[filepath.Join(state, name)] = true
	}
	var errs []error
	for dir := state; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if path := filepath.Join(dir, e.Name()); !keep[path] {
				errs = append(errs, os.RemoveAll(path))
			}
		}
		if dir == p.Work {
			break
		}
	}
	// Without a lock, the next rehearsal does not delete the folder as that of a killed one.
	errs = append(errs, os.Rename(p.path(lockName), p.path(logsName)))
	return errors.Join(errs...)
}

// outdated returns the folders of the rehearsals beyond the newest.
func outdated(parent string) []string {
	ended, err := filepath.Glob(filepath.Join(parent, "*", logsName))
	if err != nil {
		return nil
	}
	at := map[string]time.Time{}
	for _, file := range ended {
		if info, err := os.Stat(file); err == nil {
			at[file] = info.ModTime()
		}
	}
	slices.SortFunc(ended, func(a, b string) int { return at[b].Compare(at[a]) })
	var all []string
	for _, file := range ended[min(mostLogs-1, len(ended)):] { // this rehearsal leaves a folder, too
		all = append(all, filepath.Dir(file))
	}
	return all
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

package providers

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// Shared is a cluster's lock file during a run. All stages share it. It reads the file at the first use.
type Shared struct {
	Path       string                     // of the file; "" if castle does not know the repository
	Repository string                     // the root of it
	Command    func(name string) string   // a castle command for the cluster
	Folders    func() ([]string, error)   // with the lock files of the stages' modules
	Mirror     func(source string) string // the folder on this machine that has a provider; "" if none does
	Notice     func(text string)

	mu   sync.Mutex
	read bool
	file Lock // the content of the file
	// lock is the same with the versions of single stages that it lacks.
	lock      Lock
	added     []string // source addresses that the run has added to the file
	unwritten error    // the file cannot be written
}

// Name implements terraform.ProviderLock: the path as the user knows it.
func (s *Shared) Name() string {
	if relative, err := filepath.Rel(s.Repository, s.Path); err == nil && s.Path != "" {
		return relative
	}
	return FileName
}

// Upgrade implements terraform.ProviderLock.
func (s *Shared) Upgrade() string { return s.Command("providers upgrade") }

// Locked implements terraform.ProviderLock.
func (s *Shared) Locked() (Lock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	return maps.Clone(s.lock), nil
}

// load reads the file once. Where that lacks a provider, or is lost, the stages' own lock files choose the
// version: the newest, because no provider reads a state that a newer one has written.
func (s *Shared) load() error {
	if s.read {
		return nil
	}
	s.file = Lock{}
	if s.Path != "" {
		var err error
		if s.file, err = ReadFile(s.Path, os.ReadFile); err != nil {
			return fmt.Errorf("%w\n  restore the file from Git", err)
		}
	}
	s.lock = maps.Clone(s.file)
	own, err := s.ownLocks()
	if err != nil {
		return err
	}
	for _, lock := range own {
		for source, entry := range lock {
			if _, chosen := s.file[source]; chosen {
				continue
			}
			known, there := s.lock[source]
			switch {
			case !there || entry.Newer(known):
				s.lock[source] = entry
			case entry.Version == known.Version:
				s.lock[source] = known.Merged(entry)
			}
		}
	}
	s.read = true
	return nil
}

// ownLocks reads the lock files of the stages' modules.
func (s *Shared) ownLocks() (all []Lock, err error) {
	folders, err := s.Folders()
	for _, folder := range folders {
		lock, err := ReadFile(filepath.Join(folder, ModuleFile), ownfile.ReadFile)
		if err != nil { // half of one: init makes it again
			continue
		}
		for source, entry := range lock {
			if len(entry.Hashes) == 1 && strings.HasPrefix(entry.Hashes[0], "h1:") {
				lock[source] = entry.WithPlatform(Here(), entry.Hashes[0])
			}
		}
		all = append(all, lock)
	}
	return all, err
}

// Record implements terraform.ProviderLock: it adds what an init has chosen to the file. It never changes a
// version, and never removes a checksum.
func (s *Shared) Record(chosen Lock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return err
	}
	changed := false
	for source, entry := range chosen {
		before, there := s.file[source]
		if known, is := s.lock[source]; is && known.Version != entry.Version {
			return fmt.Errorf("terraform init chose %s %s, but %s has %s", Short(source),
				entry.Version, s.Name(), known.Version)
		} else if is {
			entry = known.Merged(entry)
		}
		s.lock[source] = s.complete(source, entry, !there)
		if there && before.Holds(s.lock[source].Hashes) {
			continue
		}
		if !there {
			s.added = append(s.added, source)
		}
		changed, s.file[source] = true, s.lock[source]
	}
	if !changed || s.Path == "" {
		return nil
	}
	if err := atomicfile.WriteMode(s.Path, s.file.File(), 0o644); err != nil {
		if s.unwritten == nil {
			s.Notice(fmt.Sprintf("cannot record the providers: %v", err))
		}
		s.unwritten = err
	}
	return nil
}

// complete names the platform of the checksum that an init has just added. To a new provider it adds the
// checksums for other platforms that are at hand: in a mirror on this machine, and in other clusters' files.
func (s *Shared) complete(source string, entry Entry, isNew bool) Entry {
	unnamed := xslices.Filter(entry.Hashes, func(hash string) bool {
		return strings.HasPrefix(hash, "h1:") && entry.Platforms[hash] == ""
	})
	if len(unnamed) == 1 && !entry.Names(Here()) {
		entry = entry.WithPlatform(Here(), unnamed[0])
	}
	if !isNew {
		return entry
	}
	if local := s.Mirror(source); local != "" {
		if full, err := entry.Complete(local, source, others()); err == nil {
			entry = full
		}
	}
	for _, other := range s.otherClusters() {
		same := other[source]
		agrees := func(hash string) bool {
			return strings.HasPrefix(hash, "h1:") && slices.Contains(same.Hashes, hash)
		}
		if same.Version == entry.Version && slices.ContainsFunc(entry.Of(Here()), agrees) {
			entry = entry.Merged(same)
		}
	}
	return entry
}

// others are the platforms to record beside this machine's.
func others() []string {
	return slices.DeleteFunc(Platforms(), func(platform string) bool { return platform == Here() })
}

func (s *Shared) otherClusters() (all []Lock) {
	pattern := filepath.Join(s.Repository, "clusters", "*", "*", FileName)
	paths, _ := filepath.Glob(pattern) //nolint:errcheck // the name of a folder may hold a bracket
	for _, path := range paths {
		if lock, err := ReadFile(path, os.ReadFile); err == nil {
			all = append(all, lock)
		}
	}
	return all
}

// Report says once what the run has recorded, and what it lacks for other machines.
func (s *Shared) Report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.added) == 0 || s.unwritten != nil || s.Path == "" {
		return
	}
	text := fmt.Sprintf("%s has the versions and checksums of %d more providers; keep it in Git", s.Name(),
		len(s.added))
	if len(s.added) == 1 {
		text = fmt.Sprintf("%s has the version and checksums of %s; keep it in Git", s.Name(),
			Short(s.added[0]))
	}
	var missing []string
	for _, platform := range Platforms() {
		lacks := func(source string) bool { return s.file[source].Lacks(platform) }
		if slices.ContainsFunc(s.added, lacks) {
			missing = append(missing, platform)
		}
	}
	if len(missing) > 0 {
		text += fmt.Sprintf(". It has no checksums for %s; `%s` adds them", strings.Join(missing, " and "),
			s.Command("providers lock"))
	}
	s.Notice(text)
}

// Recorded is the lock of a recorded module, with which the stage is destroyed.
type Recorded struct {
	Shared *Shared
	Module fs.FS
	Work   string // the work directory
}

// Name implements terraform.ProviderLock.
func (r Recorded) Name() string { return r.Shared.Name() }

// Upgrade implements terraform.ProviderLock. No upgrade changes a record.
func (r Recorded) Upgrade() string { return "" }

// Locked returns the versions of the stage's last apply, with the checksums that the cluster's file has for
// the same versions: for another platform, maybe. A record that castle had to rebuild may lack the lock: that
// of the work directory counts then.
func (r Recorded) Locked() (Lock, error) {
	shared, unread := r.Shared.Locked()
	text, err := fs.ReadFile(r.Module, ModuleFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(filepath.Join(r.Work, ModuleFile)); err == nil {
			return Lock{}, nil
		}
		return shared, unread
	}
	if err != nil {
		return nil, err
	}
	lock, err := Parse("the recorded "+ModuleFile, text)
	if err != nil {
		return nil, err
	}
	for source, entry := range lock {
		if same := shared[source]; same.Version == entry.Version {
			lock[source] = entry.Merged(same)
		}
	}
	return lock, nil
}

// Record implements terraform.ProviderLock. A destroy changes no file of the repository.
func (r Recorded) Record(Lock) error { return nil }

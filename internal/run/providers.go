package run

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

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Providers is the cluster's lock file during a run. All stages share it. Its zero value, with a run, reads
// the file at the first use.
type Providers struct {
	run  *Run
	mu   sync.Mutex
	read bool
	file providers.Lock // the content of the file
	// lock is the same with the versions of single stages that it lacks.
	lock      providers.Lock
	added     []string // source addresses that the run has added to the file
	unwritten error    // the file cannot be written
}

// ProvidersFile returns the path of a cluster's lock file; "" if castle does not know the repository.
func ProvidersFile(c *cluster.Cluster) string {
	if c.Config.Dir == "" || c.Options.Repository == "" {
		return ""
	}
	return filepath.Join(c.Config.Dir, providers.FileName)
}

// Name implements terraform.ProviderLock: the path as the user knows it.
func (p *Providers) Name() string {
	path := ProvidersFile(p.run.Cluster)
	if relative, err := filepath.Rel(p.run.Cluster.Options.Repository, path); err == nil && path != "" {
		return relative
	}
	return providers.FileName
}

// Upgrade implements terraform.ProviderLock.
func (p *Providers) Upgrade() string { return p.run.Cluster.Command("providers upgrade") }

// Locked implements terraform.ProviderLock.
func (p *Providers) Locked() (providers.Lock, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return nil, err
	}
	return maps.Clone(p.lock), nil
}

// load reads the file once. Where that lacks a provider, or is lost, the stages' own lock files choose the
// version: the newest, because no provider reads a state that a newer one has written.
func (p *Providers) load() error {
	if p.read {
		return nil
	}
	p.file = providers.Lock{}
	if path := ProvidersFile(p.run.Cluster); path != "" {
		var err error
		if p.file, err = providers.ReadFile(path, os.ReadFile); err != nil {
			return fmt.Errorf("%w\n  restore the file from Git", err)
		}
	}
	p.lock = maps.Clone(p.file)
	own, err := stageLocks(p.run.Cluster)
	if err != nil {
		return err
	}
	for _, lock := range own {
		for source, entry := range lock {
			if _, chosen := p.file[source]; chosen {
				continue
			}
			known, there := p.lock[source]
			switch {
			case !there || entry.Newer(known):
				p.lock[source] = entry
			case entry.Version == known.Version:
				p.lock[source] = known.Merged(entry)
			}
		}
	}
	p.read = true
	return nil
}

// stageLocks reads the lock files of all stages: those of the work directories and of the recorded modules.
func stageLocks(c *cluster.Cluster) (all []providers.Lock, err error) {
	stages, err := c.Dir.Stages()
	if err != nil {
		return nil, err
	}
	for _, stage := range stages {
		dir := c.Dir.Stage(stage)
		for _, folder := range []string{dir.Work(), recorded.Path(dir)} {
			lock, err := providers.ReadFile(filepath.Join(folder, providers.ModuleFile), ownfile.ReadFile)
			if err != nil { // half of one: init makes it again
				continue
			}
			for source, entry := range lock {
				if len(entry.Hashes) == 1 && strings.HasPrefix(entry.Hashes[0], "h1:") {
					lock[source] = entry.WithPlatform(providers.Here(), entry.Hashes[0])
				}
			}
			all = append(all, lock)
		}
	}
	return all, nil
}

// Record implements terraform.ProviderLock: it adds what an init has chosen to the file. It never changes a
// version, and never removes a checksum.
func (p *Providers) Record(chosen providers.Lock) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return err
	}
	changed := false
	for source, entry := range chosen {
		before, there := p.file[source]
		if known, is := p.lock[source]; is && known.Version != entry.Version {
			return fmt.Errorf("terraform init chose %s %s, but %s has %s", providers.Short(source),
				entry.Version, p.Name(), known.Version)
		} else if is {
			entry = known.Merged(entry)
		}
		p.lock[source] = p.complete(source, entry, !there)
		if there && before.Holds(p.lock[source].Hashes) {
			continue
		}
		if !there {
			p.added = append(p.added, source)
		}
		changed, p.file[source] = true, p.lock[source]
	}
	path := ProvidersFile(p.run.Cluster)
	if !changed || path == "" {
		return nil
	}
	if err := atomicfile.WriteMode(path, p.file.File(), 0o644); err != nil {
		if p.unwritten == nil {
			p.run.Notice(fmt.Sprintf("cannot record the providers: %v", err))
		}
		p.unwritten = err
	}
	return nil
}

// complete names the platform of the checksum that an init has just added. To a new provider it adds the
// checksums for other platforms that are at hand: in a mirror on this machine, and in the files of other
// clusters.
func (p *Providers) complete(source string, entry providers.Entry, isNew bool) providers.Entry {
	var unnamed []string
	for _, hash := range entry.Hashes {
		if strings.HasPrefix(hash, "h1:") && entry.Platforms[hash] == "" {
			unnamed = append(unnamed, hash)
		}
	}
	if len(unnamed) == 1 && !entry.Names(providers.Here()) {
		entry = entry.WithPlatform(providers.Here(), unnamed[0])
	}
	if !isNew {
		return entry
	}
	origins, err := terraform.ReadOrigins(p.run.Cluster.Options.Environ)
	if local := origins.Of(source).Local; err == nil && local != "" {
		if full, err := entry.Complete(local, source, others()); err == nil {
			entry = full
		}
	}
	for _, other := range p.otherClusters() {
		same := other[source]
		agrees := func(hash string) bool {
			return strings.HasPrefix(hash, "h1:") && slices.Contains(same.Hashes, hash)
		}
		if same.Version == entry.Version && slices.ContainsFunc(entry.Of(providers.Here()), agrees) {
			entry = entry.Merged(same)
		}
	}
	return entry
}

// others are the platforms to record beside this machine's.
func others() []string {
	return slices.DeleteFunc(providers.Platforms(), func(p string) bool { return p == providers.Here() })
}

func (p *Providers) otherClusters() (all []providers.Lock) {
	pattern := filepath.Join(p.run.Cluster.Options.Repository, "clusters", "*", "*", providers.FileName)
	paths, _ := filepath.Glob(pattern) //nolint:errcheck // the name of a folder may hold a bracket
	for _, path := range paths {
		if lock, err := providers.ReadFile(path, os.ReadFile); err == nil {
			all = append(all, lock)
		}
	}
	return all
}

// report says once what the run has recorded, and what it lacks for other machines.
func (p *Providers) report() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.added) == 0 || p.unwritten != nil || ProvidersFile(p.run.Cluster) == "" {
		return
	}
	if process.Getenv(p.run.Cluster.Options.Environ, "CASTLE_LAB_REPOSITORY") != "" {
		return // a rehearsal's copy of the repository ends with it
	}
	text := fmt.Sprintf("%s has the versions and checksums of %d more providers; keep it in Git", p.Name(),
		len(p.added))
	if len(p.added) == 1 {
		text = fmt.Sprintf("%s has the version and checksums of %s; keep it in Git", p.Name(),
			providers.Short(p.added[0]))
	}
	var missing []string
	for _, platform := range providers.Platforms() {
		lacks := func(source string) bool { return p.file[source].Lacks(platform) }
		if slices.ContainsFunc(p.added, lacks) {
			missing = append(missing, platform)
		}
	}
	if len(missing) > 0 {
		text += fmt.Sprintf(". It has no checksums for %s; `%s` adds them", strings.Join(missing, " and "),
			p.run.Cluster.Command("providers lock"))
	}
	p.run.Notice(text)
}

// recordedProviders is the lock of a recorded module, with which the stage is destroyed.
type recordedProviders struct {
	cluster *Providers
	module  fs.FS
	work    string // the work directory
}

// Name implements terraform.ProviderLock.
func (p recordedProviders) Name() string { return p.cluster.Name() }

// Upgrade implements terraform.ProviderLock. No upgrade changes a record.
func (p recordedProviders) Upgrade() string { return "" }

// Locked returns the versions of the stage's last apply, with the checksums that the cluster's file has for
// the same versions: for another platform, maybe. A record that castle had to rebuild may lack the lock: that
// of the work directory counts then.
func (p recordedProviders) Locked() (providers.Lock, error) {
	shared, unread := p.cluster.Locked()
	text, err := fs.ReadFile(p.module, providers.ModuleFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(filepath.Join(p.work, providers.ModuleFile)); err == nil {
			return providers.Lock{}, nil
		}
		return shared, unread
	}
	if err != nil {
		return nil, err
	}
	lock, err := providers.Parse("the recorded "+providers.ModuleFile, text)
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
func (p recordedProviders) Record(providers.Lock) error { return nil }

// IsPrepared reports whether init has chosen the providers of a stage on this machine.
func IsPrepared(dir *state.Stage) bool {
	_, err := os.Lstat(filepath.Join(dir.Work(), providers.ModuleFile))
	return err == nil
}

// versions returns the versions of a stage's providers that the next init uses. Where no init has chosen them
// on this machine, they are those that the cluster's file or the recorded modules have.
func (p *Providers) versions(s *config.Stage, dir *state.Stage) (map[string]string, error) {
	all, err := (&terraform.Root{Dir: dir.Work()}).ProviderVersions()
	if err != nil {
		return nil, err
	}
	if !IsPrepared(dir) {
		for _, source := range s.Providers {
			all[source] = ""
		}
	}
	locked, err := p.Locked()
	if err != nil {
		return nil, err
	}
	for source, chosen := range all {
		if entry, ok := locked[source]; ok {
			all[source] = entry.Version
		} else if chosen == "" {
			delete(all, source)
		}
	}
	return all, nil
}

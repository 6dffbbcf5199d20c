package terraform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/providers"
)

// ProviderLock holds the providers that the stages of a cluster share.
type ProviderLock interface {
	// Locked returns the versions and checksums that init must use.
	Locked() (providers.Lock, error)
	// Record adds the providers and checksums of an init that Locked lacks.
	Record(providers.Lock) error
	// Name is the file in which a user finds them.
	Name() string
	// Upgrade is the command that chooses and records them anew.
	Upgrade() string
}

func (r *Root) lockPath() string { return filepath.Join(r.Dir, lockFileName) }

// chosen reads the module's lock file. Half of one, which a power cut can leave, counts as none.
func (i initialization) chosen() providers.Lock {
	lock, err := providers.ReadFile(i.root.lockPath(), ownfile.ReadFile)
	if err != nil {
		return providers.Lock{}
	}
	return lock
}

// align gives the providers of the module's lock file the versions and checksums of the cluster's lock. With
// all, it adds every other provider of that: init removes those that the module does not need.
func (i initialization) align(all bool) error {
	if i.root.Providers == nil {
		return nil
	}
	locked, err := i.root.Providers.Locked()
	if err != nil {
		return err
	}
	now := i.chosen()
	next := maps.Clone(now)
	for source, entry := range locked {
		own, there := now[source]
		switch {
		case !there && !all:
		case entry.Lacks(providers.Here()) &&
			(!there || own.Version != entry.Version || entry.Holds(own.Hashes)):
			// Terraform would take every package for a changed one. Without checksums it records the first.
			next[source] = providers.Entry{Version: entry.Version, Constraints: own.Constraints}
		case !there || own.Version != entry.Version || !own.Holds(entry.Of(providers.Here())):
			entry.Constraints = own.Constraints
			next[source] = entry
		}
	}
	if maps.EqualFunc(now, next, func(a, b providers.Entry) bool {
		return a.Version == b.Version && slices.Equal(a.Hashes, b.Hashes)
	}) {
		return nil
	}
	return atomicfile.Write(i.root.lockPath(), next.File())
}

// record records the providers of the module's lock file in the cluster's lock.
func (i initialization) record() error {
	if i.root.Providers == nil {
		return nil
	}
	return i.root.Providers.Record(i.chosen())
}

// locks reports whether the cluster's lock chooses a provider that a failed init names.
func (i initialization) locks(failed error) bool {
	e, is := errors.AsType[*Error](failed)
	if i.root.Providers == nil || !is {
		return false
	}
	locked, err := i.root.Providers.Locked()
	return err == nil && slices.ContainsFunc(e.Diagnostics, func(d Diagnostic) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(locked)), func(source string) bool {
			return strings.Contains(d.text(), "locked provider "+source+" ")
		})
	})
}

// onlyPublished reports whether a failed init found a package in the plugin cache that it cannot compare: the
// lock has the checksums of archives only. Without the cache, init compares the archive.
func (i initialization) onlyPublished(failed error) bool {
	e, is := errors.AsType[*MismatchError](failed)
	if !is || !e.Cached {
		return false
	}
	entry := i.chosen()[e.Package.Source]
	published := func(hash string) bool { return strings.HasPrefix(hash, "zh:") }
	return entry.Published() && !slices.ContainsFunc(entry.Of(e.Package.Platform),
		func(hash string) bool { return !published(hash) })
}

// MismatchError reports a provider that does not have the recorded checksum.
type MismatchError struct {
	Package  providers.Package
	Expected []string // for this platform
	Found    string   // empty: castle could not compute it
	At       string   // the folder, archive or address
	Cached   bool     // At is castle's plugin cache
	Lock     string   // the file with the expected ones
	Upgrade  string   // the command that records others
	Err      error    // Terraform's own
}

func (e *MismatchError) Error() string {
	text := fmt.Sprintf("provider %s %s for %s is not the one that was recorded, so castle does not run it\n"+
		"  expected %s, in %s\n", providers.Short(e.Package.Source), e.Package.Version, e.Package.Platform,
		strings.Join(e.Expected, " or "), e.Lock)
	if e.Found != "" {
		text += fmt.Sprintf("  found    %s, at %s\n", e.Found, e.At)
	} else {
		text += fmt.Sprintf("  found    another one, at %s\n", e.At)
	}
	if e.Cached {
		return text + "  Delete that folder: castle installs the provider again."
	}
	text += "  Restore the provider there."
	if e.Upgrade != "" {
		text += fmt.Sprintf(" If it was changed on purpose, `%s` records it.", e.Upgrade)
	}
	return text
}

func (e *MismatchError) Unwrap() error { return e.Err }

// mismatch explains an error of Terraform about a provider's checksum; other errors stay as they are.
func (r *Root) mismatch(ctx context.Context, err error) error {
	e, is := errors.AsType[*Error](err)
	if !is {
		return err
	}
	for _, d := range e.Diagnostics {
		m := wrongChecksum().FindStringSubmatch(strings.Join(strings.Fields(d.text()), " "))
		if m == nil {
			continue
		}
		pkg := providers.Package{Source: m[2], Version: m[3], Platform: providers.Here()}
		found := &MismatchError{Package: pkg, Lock: r.lockPath(), Err: err}
		if r.Providers != nil {
			found.Lock, found.Upgrade = r.Providers.Name(), r.Providers.Upgrade()
		}
		if lock, unread := providers.ReadFile(r.lockPath(), ownfile.ReadFile); unread == nil {
			found.Expected = lock[pkg.Source].Of(pkg.Platform)
		}
		found.locate(ctx, r, m[1])
		return found
	}
	return err
}

// locate finds the package that Terraform refused, and its checksum. kind is Terraform's word for its origin.
func (e *MismatchError) locate(ctx context.Context, r *Root, kind string) {
	switch kind {
	case "cache", "cached":
		dir := r.PluginCache
		if e.Package.Find(dir) == "" {
			dir = filepath.Join(r.dataDir(), "providers")
		}
		e.Found, e.At, _ = e.Package.HashIn(dir) //nolint:errcheck // the text says that it is unknown
		origin, err := filepath.EvalSymlinks(e.At)
		if e.Cached = err != nil || origin == e.At || strings.HasPrefix(origin, r.PluginCache); !e.Cached {
			e.At = origin // the cache only has a link to an unpacked mirror
		}
		return
	}
	origins, err := ReadOrigins(r.Env)
	if err != nil {
		return
	}
	origin := origins.Of(e.Package.Source)
	if e.At = origin.URL; origin.Local != "" {
		e.Found, e.At, _ = e.Package.HashIn(origin.Local) //nolint:errcheck // likewise
		return
	}
	offer, err := offers(ctx, r, origin.Mirror, e.Package.Platform,
		providers.Lock{e.Package.Source: {Version: e.Package.Version}})
	if err == nil {
		e.Found = strings.Join(offer[e.Package.Source].Hashes, " or ")
	}
}

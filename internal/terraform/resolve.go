package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/providers"
)

// Resolution chooses the providers of a cluster, outside of its stages.
type Resolution struct {
	Root      *Root             // whose Binary, PluginCache and Env are used
	Required  map[string]string // version constraints by source address
	Locked    providers.Lock    // versions that stay
	Platforms []string          // for which to have checksums
}

// Resolve returns the newest versions that the constraints allow, from where Terraform's own configuration
// installs providers, with their checksums. Checksums that it cannot have are absent.
func (o Resolution) Resolve(ctx context.Context) (_ providers.Lock, err error) {
	dir, err := process.TempDir("providers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	chosen, err := o.choose(ctx, dir)
	if err != nil {
		return nil, err
	}
	origins, err := ReadOrigins(o.Root.Env)
	if err != nil {
		return nil, err
	}
	byMirror, own := map[string]providers.Lock{}, maps.Clone(chosen)
	for source, entry := range chosen {
		// castle's cache may have another package than the origin has now, so init's checksum does not count.
		entry = providers.Entry{Version: entry.Version, Constraints: o.Required[source]}
		if known := o.Locked[source]; known.Version == entry.Version {
			entry = withOwn(entry.Merged(known), own[source]) // init has compared it
		}
		if origin := origins.Of(source); origin.Local != "" {
			if entry, err = entry.Complete(origin.Local, source, o.Platforms); err != nil {
				return nil, err
			}
		} else {
			if byMirror[origin.Mirror] == nil {
				byMirror[origin.Mirror] = providers.Lock{}
			}
			byMirror[origin.Mirror][source] = entry
		}
		chosen[source] = entry
	}
	for mirror, lock := range byMirror {
		for _, platform := range o.Platforms {
			if err := o.offered(ctx, mirror, platform, lock); err != nil {
				return nil, err
			}
		}
		maps.Copy(chosen, lock)
	}
	for source, entry := range chosen {
		if len(entry.Of(providers.Here())) == 0 { // the origin does not answer, and init had the cache's
			chosen[source] = withOwn(entry, own[source])
		}
	}
	return chosen, nil
}

// withOwn adds the checksums that an init on this machine has recorded.
func withOwn(e, own providers.Entry) providers.Entry {
	for _, hash := range own.Hashes {
		if strings.HasPrefix(hash, "h1:") && !slices.Contains(e.Hashes, hash) {
			e = e.WithPlatform(providers.Here(), hash)
		} else {
			e = e.With(hash)
		}
	}
	return e
}

// choose has init choose the versions, as it does for a stage.
func (o Resolution) choose(ctx context.Context, dir string) (providers.Lock, error) {
	module, work := filepath.Join(dir, "module"), filepath.Join(dir, "work")
	if err := os.Mkdir(module, 0o700); err != nil {
		return nil, err
	}
	text := require(o.Required)
	if err := os.WriteFile(filepath.Join(module, "main.tf.json"), text, 0o600); err != nil {
		return nil, err
	}
	root := o.Root.scratchRoot(work)
	root.Providers = fixed(o.Locked)
	if err := root.Materialise(os.DirFS(module), Override{}); err != nil {
		return nil, err
	}
	if err := root.Init(ctx); err != nil {
		return nil, err
	}
	return providers.ReadFile(root.lockPath(), ownfile.ReadFile)
}

// offered adds the checksums for a platform that a registry or a network mirror has. One provider that lacks
// the platform does not prevent the others'.
func (o Resolution) offered(ctx context.Context, mirror, platform string, lock providers.Lock) error {
	wanted := providers.Lock{}
	for source, entry := range lock {
		if !entry.Names(platform) {
			wanted[source] = entry
		}
	}
	got, err := offers(ctx, o.Root, mirror, platform, wanted)
	if err != nil && len(wanted) > 1 && ctx.Err() == nil {
		got = providers.Lock{}
		for source, entry := range wanted {
			one, failed := offers(ctx, o.Root, mirror, platform, providers.Lock{source: entry})
			if failed == nil {
				maps.Copy(got, one)
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for source, offer := range got {
		entry := lock[source]
		for _, hash := range offer.Hashes {
			if strings.HasPrefix(hash, "h1:") {
				entry = entry.WithPlatform(platform, hash)
			} else {
				entry = entry.With(hash)
			}
		}
		lock[source] = entry
	}
	return nil
}

// offers returns the checksums of these versions that a network mirror, or else their registry, has now.
func offers(
	ctx context.Context, r *Root, mirror, platform string, lock providers.Lock,
) (found providers.Lock, err error) {
	if len(lock) == 0 {
		return nil, nil
	}
	options := []tfexec.ProvidersLockOption{tfexec.Platform(platform)}
	if mirror != "" {
		options = append(options, tfexec.NetMirror(mirror))
	}
	err = r.withExactly(lock, func(scratch *Root) error {
		err := scratch.command(ctx, "providers lock", nil, func(tf *tfexec.Terraform, s *stream) error {
			tf.SetStdout(s.stderr())
			return tf.ProvidersLock(ctx, options...)
		})
		if err == nil {
			found, err = providers.ReadFile(scratch.lockPath(), ownfile.ReadFile)
		}
		return err
	})
	return found, err
}

// MirrorRegistry downloads the packages of these versions for a platform from their registries into a mirror.
func (r *Root) MirrorRegistry(ctx context.Context, platform, mirror string, lock providers.Lock) error {
	return r.withExactly(lock, func(scratch *Root) error {
		return scratch.command(ctx, "providers mirror", nil, func(tf *tfexec.Terraform, s *stream) error {
			tf.SetStdout(s.stderr())
			return tf.ProvidersMirror(ctx, mirror, tfexec.Platform(platform))
		})
	})
}

// withExactly calls do with a root whose module requires these versions of providers.
func (r *Root) withExactly(lock providers.Lock, do func(scratch *Root) error) (err error) {
	dir, err := process.TempDir("providers")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	required := map[string]string{}
	for source, entry := range lock {
		required[source] = "= " + entry.Version
	}
	if err := os.WriteFile(filepath.Join(dir, "main.tf.json"), require(required), 0o600); err != nil {
		return err
	}
	return do(r.scratchRoot(dir))
}

// require is a module that requires providers: version constraints by source address.
func require(constraints map[string]string) []byte {
	required := map[string]any{}
	for source, constraint := range constraints {
		one := map[string]string{"source": source}
		if constraint != "" {
			one["version"] = constraint
		}
		required[fmt.Sprintf("p%d", len(required))] = one
	}
	text, err := json.Marshal(map[string]any{"terraform": map[string]any{"required_providers": required}})
	if err != nil {
		panic(err) // strings only
	}
	return text
}

// scratchRoot is a root with the same Terraform in another folder.
func (r *Root) scratchRoot(dir string) *Root {
	return &Root{Binary: r.Binary, Dir: dir, StatePath: filepath.Join(dir, "terraform.tfstate"),
		PluginCache: r.PluginCache, Env: r.Env, Run: r.Run, Log: r.Log, Hide: r.Hide}
}

// fixed is a lock that nothing changes.
type fixed providers.Lock

// Locked implements ProviderLock.
func (f fixed) Locked() (providers.Lock, error) { return providers.Lock(f), nil }

// Record implements ProviderLock.
func (fixed) Record(providers.Lock) error { return nil }

// Name implements ProviderLock.
func (fixed) Name() string { return providers.FileName }

// Upgrade implements ProviderLock.
func (fixed) Upgrade() string { return "" }

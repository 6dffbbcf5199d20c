// Package providers maintains the lock file of a cluster's Terraform providers outside of a run, and copies
// what it names for machines without internet.
package providers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	lockfile "github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Change is one provider of the file, before and after.
type Change struct {
	Provider  string   `json:"provider"`
	Old       string   `json:"old,omitempty"` // version; empty: the file did not have it
	New       string   `json:"new"`
	Changed   bool     `json:"checksum_changed,omitempty"` // the same version has another content
	Platforms []string `json:"platforms"`                  // whose package can be verified
}

// Result is a lock file that was written.
type Result struct {
	File    string   `json:"file"`
	Changes []Change `json:"providers"`
	Missing []string `json:"missing,omitempty"` // platforms without checksums of some provider
	Next    string   `json:"next"`
}

// Upgrade chooses the newest versions that the stages' constraints allow, and replaces the file.
func Upgrade(ctx context.Context, c *cluster.Cluster) (*Result, error) {
	result, err := write(ctx, c, lockfile.Lock{})
	if err == nil {
		result.Next = c.Command("plan")
	}
	return result, err
}

// Lock adds to the file what it lacks: providers of stages that were never created, and checksums for other
// platforms. It changes no version.
func Lock(ctx context.Context, c *cluster.Cluster) (*Result, error) {
	locked, err := run.Observe(ctx, c).Providers.Locked()
	if err != nil {
		return nil, err
	}
	return write(ctx, c, locked)
}

// write resolves the providers of all stages and writes the file. Of those that no stage requires itself, the
// entries stay: they may belong to a module from elsewhere.
func write(ctx context.Context, c *cluster.Cluster, locked lockfile.Lock) (*Result, error) {
	path := run.ProvidersFile(c)
	before, err := lockfile.ReadFile(path, os.ReadFile)
	if err != nil && len(locked) > 0 {
		return nil, err
	}
	required, err := requirements(c)
	if err != nil {
		return nil, err
	}
	root, err := scratch(ctx, c)
	if err != nil {
		return nil, err
	}
	chosen, err := terraform.Resolution{
		Root: root, Required: required, Locked: locked, Platforms: lockfile.Platforms(),
	}.Resolve(ctx)
	if err != nil {
		return nil, c.MaskError(err)
	}
	after := maps.Clone(before)
	if after == nil {
		after = lockfile.Lock{}
	}
	maps.Copy(after, chosen)
	if err := atomicfile.WriteMode(path, after.File(), 0o644); err != nil {
		return nil, err
	}
	return compare(path, before, after), nil
}

// requirements joins the version constraints of all stages.
func requirements(c *cluster.Cluster) (map[string]string, error) {
	all, first := map[string]string{}, map[string]string{}
	for _, s := range c.Config.Stages {
		required, err := lockfile.Required(s.Module)
		if err != nil {
			return nil, err
		}
		for source, constraints := range required {
			ok, err := lockfile.Compatible(all[source], constraints)
			if err != nil {
				return nil, fmt.Errorf("stage %s: provider %s: %w", s.Name, lockfile.Short(source), err)
			}
			if !ok {
				return nil, cluster.Usagef("stage %s requires %s %s, but stage %s and others require %s: no "+
					"version suits all; change one of them", s.Name, lockfile.Short(source), constraints,
					first[source], all[source])
			}
			first[source] = cmp.Or(first[source], s.Name)
			all[source] = lockfile.Join(all[source], constraints)
		}
	}
	return all, nil
}

// scratch returns a root whose Terraform and plugin cache are those of the cluster's stages.
func scratch(ctx context.Context, c *cluster.Cluster) (*terraform.Root, error) {
	binary, err := c.FindBinary(ctx, func(string) {})()
	if err != nil {
		return nil, err
	}
	return &terraform.Root{Binary: binary, PluginCache: c.Shared(".plugins"), Env: c.Options.Environ,
		Run: "providers", Log: io.Discard, Hide: c.Masker.Hide}, nil
}

func compare(path string, before, after lockfile.Lock) *Result {
	result := &Result{File: path, Changes: []Change{}}
	missing := map[string]bool{}
	for _, source := range slices.Sorted(maps.Keys(after)) {
		old, entry := before[source], after[source]
		one := Change{
			Provider: lockfile.Short(source), Old: old.Version, New: entry.Version, Platforms: []string{},
		}
		one.Changed = old.Version == entry.Version && !entry.Holds(old.Of(lockfile.Here()))
		for _, platform := range lockfile.Platforms() {
			if entry.Lacks(platform) {
				missing[platform] = true
			} else {
				one.Platforms = append(one.Platforms, platform)
			}
		}
		result.Changes = append(result.Changes, one)
	}
	for _, platform := range lockfile.Platforms() {
		if missing[platform] {
			result.Missing = append(result.Missing, platform)
		}
	}
	return result
}

// Package providers owns providers.lock.hcl, the versions and checksums of the Terraform providers of one
// cluster. The file has Terraform's own lock format, with all stages merged, so that each provider is the
// same in every stage and on every machine. castle adds as a comment for which platform a checksum is. One
// with the scheme zh is the publisher's, of a zip archive for any platform; one with h1 is computed from the
// files of a package.
package providers

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2/hclsimple"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// FileName is the name of the file in a cluster's folder.
const FileName = "providers.lock.hcl"

// ModuleFile is the name of Terraform's own lock file, in the folder of a module.
const ModuleFile = ".terraform.lock.hcl"

// ModuleLock returns the text of the lock file in a module's folder; nil without one.
func ModuleLock(dir string) ([]byte, error) {
	text, err := ownfile.ReadFile(filepath.Join(dir, ModuleFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Lock holds the chosen providers by source address: "registry.terraform.io/hashicorp/helm".
type Lock map[string]Entry

// Entry is one provider's chosen version.
type Entry struct {
	Version     string
	Constraints string            // for which it was chosen
	Hashes      []string          // sorted: "h1:…", "zh:…"
	Platforms   map[string]string // of a checksum with the scheme h1, where it is known
}

// Here returns the platform of this machine: "linux_amd64".
func Here() string { return runtime.GOOS + "_" + runtime.GOARCH }

// Platforms returns the platforms that castle records.
func Platforms() []string { return []string{"linux_amd64", "linux_arm64", "darwin_arm64"} }

// ReadFile reads a lock file, with os.ReadFile or another function. A missing one is empty.
func ReadFile(path string, read func(string) ([]byte, error)) (Lock, error) {
	text, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Lock{}, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// labelled matches a checksum with castle's comment.
var labelled = regexp.MustCompile(`(?m)^\s*"(h1:[^"]+)",?[ \t]*#[ \t]*([a-z0-9]+_[a-z0-9]+)[ \t]*\r?$`)

// Parse reads the text of a lock file; name is for errors and ends in .hcl.
func Parse(name string, text []byte) (Lock, error) {
	var file struct {
		Providers []struct {
			Source      string   `hcl:"source,label"`
			Version     string   `hcl:"version"`
			Constraints string   `hcl:"constraints,optional"`
			Hashes      []string `hcl:"hashes,optional"`
		} `hcl:"provider,block"`
	}
	if err := hclsimple.Decode(name, text, nil, &file); err != nil {
		return nil, err
	}
	platforms := map[string]string{}
	for _, m := range labelled.FindAllSubmatch(text, -1) {
		platforms[string(m[1])] = string(m[2])
	}
	lock := Lock{}
	for _, p := range file.Providers {
		if _, err := version.NewVersion(p.Version); err != nil {
			return nil, fmt.Errorf("%s: provider %s: %w", name, p.Source, err)
		}
		if _, twice := lock[p.Source]; twice {
			return nil, fmt.Errorf("%s: provider %s is listed twice", name, p.Source)
		}
		e := Entry{Version: p.Version, Constraints: p.Constraints, Platforms: map[string]string{}}
		for _, hash := range p.Hashes {
			if platform := platforms[hash]; platform != "" {
				e.Platforms[hash] = platform
			}
		}
		lock[p.Source] = e.With(p.Hashes...)
	}
	return lock, nil
}

const header = `# The versions and checksums of the Terraform providers of this cluster, for all its stages.
# castle maintains this file; keep it in Git. "castle providers upgrade" chooses newer versions.
`

// File returns the text of the cluster's lock file.
func (l Lock) File() []byte {
	b := bytes.NewBufferString(header)
	for _, source := range slices.Sorted(maps.Keys(l)) {
		e := l[source]
		fmt.Fprintf(b, "\nprovider %q {\n  version     = %q\n", source, e.Version)
		if e.Constraints != "" {
			fmt.Fprintf(b, "  constraints = %q\n", e.Constraints)
		}
		if len(e.Hashes) > 0 {
			b.WriteString("  hashes = [\n")
			for _, hash := range e.Hashes {
				fmt.Fprintf(b, "    %q,", hash)
				if platform := e.Platforms[hash]; platform != "" {
					b.WriteString(" # " + platform)
				}
				b.WriteByte('\n')
			}
			b.WriteString("  ]\n")
		}
		b.WriteString("}\n")
	}
	return b.Bytes()
}

// With returns the entry with more checksums.
func (e Entry) With(hashes ...string) Entry {
	all := slices.Concat(e.Hashes, hashes)
	slices.Sort(all)
	e.Hashes, e.Platforms = slices.Compact(all), maps.Clone(e.Platforms)
	return e
}

// WithPlatform returns the entry with the checksum of the package for a platform.
func (e Entry) WithPlatform(platform, hash string) Entry {
	e = e.With(hash)
	if e.Platforms == nil {
		e.Platforms = map[string]string{}
	}
	e.Platforms[hash] = platform
	return e
}

// Merged returns the entry with the checksums of another entry of the same version.
func (e Entry) Merged(o Entry) Entry {
	e = e.With(o.Hashes...)
	if e.Platforms == nil {
		e.Platforms = map[string]string{}
	}
	maps.Copy(e.Platforms, o.Platforms)
	return e
}

// Holds reports whether the entry has all these checksums.
func (e Entry) Holds(hashes []string) bool {
	return !slices.ContainsFunc(hashes, func(h string) bool { return !slices.Contains(e.Hashes, h) })
}

// Published reports whether the entry has checksums of the publisher's archives.
func (e Entry) Published() bool {
	return slices.ContainsFunc(e.Hashes, func(h string) bool { return strings.HasPrefix(h, "zh:") })
}

// Names reports whether a checksum is known to be of the package for a platform.
func (e Entry) Names(platform string) bool {
	return slices.Contains(slices.Collect(maps.Values(e.Platforms)), platform)
}

// Lacks reports whether no checksum can be of the package for a platform: each is known to be of another one.
func (e Entry) Lacks(platform string) bool {
	return !slices.ContainsFunc(e.Hashes, func(h string) bool {
		of := e.Platforms[h]
		return of == "" || of == platform
	})
}

// Of returns the checksums that the package for a platform may have.
func (e Entry) Of(platform string) []string {
	return slices.DeleteFunc(slices.Clone(e.Hashes), func(h string) bool {
		of := e.Platforms[h]
		return of != "" && of != platform
	})
}

// Newer reports whether an entry has a newer version than another.
func (e Entry) Newer(o Entry) bool {
	a, errA := version.NewVersion(e.Version)
	b, errB := version.NewVersion(o.Version)
	if errA != nil || errB != nil {
		return cmp.Compare(e.Version, o.Version) > 0
	}
	return a.GreaterThan(b)
}

// Short returns a source address without the default registry: "hashicorp/helm".
func Short(source string) string { return strings.TrimPrefix(source, "registry.terraform.io/") }

// Type returns the last part of a source address, which names the program: "helm".
func Type(source string) string { return source[strings.LastIndex(source, "/")+1:] }

// Package is the package of one version of a provider for one platform.
type Package struct{ Source, Version, Platform string }

// Archive is the file name of the zip archive, as registries and mirrors have it.
func (p Package) Archive() string {
	return fmt.Sprintf("terraform-provider-%s_%s_%s.zip", Type(p.Source), p.Version, p.Platform)
}

// Unpacked is the folder of the package below a plugin cache or an unpacked mirror.
func (p Package) Unpacked() string {
	return filepath.Join(filepath.FromSlash(p.Source), p.Version, p.Platform)
}

// Find returns the folder or the archive of the package below a mirror or a plugin cache; "" without one.
func (p Package) Find(dir string) string {
	unpacked := filepath.Join(dir, p.Unpacked())
	if info, err := os.Stat(unpacked); err == nil && info.IsDir() {
		return unpacked
	}
	packed := filepath.Join(dir, filepath.FromSlash(p.Source), p.Archive())
	if info, err := os.Stat(packed); err == nil && info.Mode().IsRegular() {
		return packed
	}
	return ""
}

// Hash returns the checksum (h1) of a package's folder or archive, as Terraform computes it.
func Hash(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path) // a plugin cache has links to an unpacked mirror
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return dirhash.HashDir(real, "", dirhash.Hash1)
	}
	return dirhash.HashZip(real, dirhash.Hash1)
}

// HashIn returns the checksum of the package below a mirror or a plugin cache; fs.ErrNotExist without one.
func (p Package) HashIn(dir string) (hash, path string, err error) {
	if path = p.Find(dir); path == "" {
		return "", "", &fs.PathError{Op: "find", Path: filepath.Join(dir, p.Unpacked()), Err: fs.ErrNotExist}
	}
	hash, err = Hash(path)
	return hash, path, err
}

// Complete adds to an entry the checksums for these platforms that a filesystem mirror has; known ones stay.
func (e Entry) Complete(dir, source string, platforms []string) (Entry, error) {
	for _, platform := range platforms {
		if e.Names(platform) {
			continue
		}
		hash, _, err := (Package{source, e.Version, platform}).HashIn(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return e, err
		}
		e = e.WithPlatform(platform, hash)
	}
	return e, nil
}

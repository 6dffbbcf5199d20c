package providers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/dirhash"
)

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

// Complete adds to an entry the checksums of the packages for these platforms that a filesystem mirror has.
// One that is known stays.
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

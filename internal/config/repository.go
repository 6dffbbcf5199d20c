package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// FindRepository returns the nearest folder from start upward that holds a folder clusters/.
func FindRepository(start string) (string, error) {
	from, err := filepath.Abs(start)
	if err != nil {
		return "", err
	}
	for dir := from; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(filepath.Join(dir, "clusters"))
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return "", err
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("no castle repository: "+
				"neither %s nor a folder above it holds a folder clusters/", from)
		}
	}
}

// Clusters returns the clusters of a repository, "blue/proxmox", sorted.
func Clusters(repository string) ([]string, error) {
	names, err := fs.Glob(os.DirFS(repository), "clusters/*/*/cluster.hcl")
	for i, name := range names {
		names[i] = strings.TrimPrefix(path.Dir(name), "clusters/")
	}
	slices.Sort(names)
	return names, err
}

// resolve finds the one cluster that reference means.
func resolve(repository, reference string) (name, platform string, err error) {
	if repository == "" {
		return "", "", errors.New("no castle repository: there is no folder clusters/ here or above")
	}
	all, err := Clusters(repository)
	if err != nil {
		return "", "", err
	}
	if len(all) == 0 {
		return "", "", fmt.Errorf("no clusters: there is no clusters/<name>/<platform>/cluster.hcl in %s",
			repository)
	}
	wanted, wantedPlatform, hasPlatform := strings.Cut(reference, "/")
	var names, platforms []string
	for _, c := range all {
		n, p, _ := strings.Cut(c, "/")
		names = append(names, n)
		if n == wanted {
			platforms = append(platforms, p)
		}
	}
	switch {
	case slices.Contains(all, reference):
		return wanted, wantedPlatform, nil
	case len(platforms) == 0:
		return "", "", fmt.Errorf("cluster %q: not known; there are %s%s", wanted, strings.Join(all, ", "),
			DidYouMean(wanted, names))
	case hasPlatform:
		return "", "", fmt.Errorf("cluster %q: no platform %q; it lives on %s%s", wanted, wantedPlatform,
			strings.Join(platforms, ", "), DidYouMean(wantedPlatform, platforms))
	case len(platforms) > 1:
		return "", "", fmt.Errorf("cluster %q: lives on several platforms; say %s/%s", wanted, wanted,
			strings.Join(platforms, " or "+wanted+"/"))
	}
	return wanted, platforms[0], nil
}

// templates lays the repository's templates/ over the embedded ones, file by file.
type templates struct{ over, under fs.FS }

// Templates are the embedded template files, shadowed by those in the repository.
func Templates(repository string, embedded fs.FS) fs.FS {
	return templates{os.DirFS(filepath.Join(repository, "templates")), embedded}
}

// Open opens the repository's file, or else the embedded one.
func (t templates) Open(name string) (fs.File, error) {
	f, err := t.over.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return t.under.Open(name)
	}
	return f, err
}

// ReadDir lists the files of both, each name once.
func (t templates) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(t.over, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	under, errUnder := fs.ReadDir(t.under, name)
	if err != nil && errUnder != nil {
		return nil, err
	}
	entries = append(entries, under...)
	byName := func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortStableFunc(entries, byName)
	return slices.CompactFunc(entries, func(a, b fs.DirEntry) bool { return a.Name() == b.Name() }), nil
}

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
	if slices.Contains(all, reference) {
		name, platform, _ = strings.Cut(reference, "/")
		return name, platform, nil
	}
	var names, platforms []string
	wanted, wantedPlatform, hasPlatform := strings.Cut(reference, "/")
	for _, c := range all {
		n, p, _ := strings.Cut(c, "/")
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
		if n == wanted {
			platforms = append(platforms, p)
		}
	}
	switch {
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

// Package folders finds a castle repository and the clusters in it, by their folders alone. It offers no
// folder whose name breaks the rule of package naming, so that no other package meets such a name.
package folders

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// Find returns the nearest folder from start upward that holds a folder clusters/.
func Find(start string) (string, error) {
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
			return "", fmt.Errorf("no castle repository: neither %s nor a folder above it holds a folder "+
				"clusters/; `castle init` makes one, and -C DIR names another folder", from)
		}
	}
}

// Clusters returns the clusters of a repository, "blue/proxmox", sorted. It leaves out folders whose names
// break the rule; the error is a *naming.Error for each.
func Clusters(folder string) (all []string, err error) {
	files, err := fs.Glob(os.DirFS(folder), "clusters/*/*/cluster.hcl")
	for _, file := range files {
		name, platform := path.Base(path.Dir(path.Dir(file))), path.Base(path.Dir(file))
		wrong := naming.Check(path.Dir(file), "rename the folder", name, platform)
		if err = errors.Join(err, wrong); wrong == nil {
			all = append(all, name+"/"+platform)
		}
	}
	slices.Sort(all)
	return all, err
}

// Resolve finds the one cluster that reference means.
func Resolve(folder, reference string) (name, platform string, err error) {
	if folder == "" {
		return "", "", errors.New("no castle repository: there is no folder clusters/ here or above")
	}
	wanted, wantedPlatform, hasPlatform := strings.Cut(reference, "/")
	if naming.Suits(wanted) && naming.Suits(wantedPlatform) {
		_, err := os.Lstat(filepath.Join(folder, "clusters", wanted, wantedPlatform, "cluster.hcl"))
		if err == nil { // as a check names them; it need not list all clusters for each
			return wanted, wantedPlatform, nil
		}
	}
	all, err := Clusters(folder)
	if len(all) == 0 && err == nil {
		return "", "", fmt.Errorf("no clusters: there is no clusters/<name>/<platform>/cluster.hcl in %s; "+
			"`castle new CLUSTER` generates one", folder)
	}
	var known, platforms []string
	for _, c := range all {
		n, p, _ := strings.Cut(c, "/")
		known = append(known, n)
		if n == wanted {
			platforms = append(platforms, p)
		}
	}
	switch {
	case slices.Contains(all, reference):
		return wanted, wantedPlatform, nil
	case len(platforms) == 0 && err != nil: // it may mean one of those that are left out
		return "", "", err
	case len(platforms) == 0:
		return "", "", fmt.Errorf("cluster %q: not known; there are %s%s", wanted, strings.Join(all, ", "),
			syntax.DidYouMean(wanted, known))
	case hasPlatform:
		return "", "", fmt.Errorf("cluster %q: no platform %q; it lives on %s%s", wanted, wantedPlatform,
			strings.Join(platforms, ", "), syntax.DidYouMean(wantedPlatform, platforms))
	case len(platforms) > 1:
		return "", "", fmt.Errorf("cluster %q: lives on several platforms; say %s/%s", wanted, wanted,
			strings.Join(platforms, " or "+wanted+"/"))
	}
	return wanted, platforms[0], nil
}

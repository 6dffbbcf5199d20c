package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// recordedName finds a cluster that is recorded but no longer configured; "" if there is none.
func recordedName(ctx context.Context, shared *StateStore, root, reference string) (
	name, platform string, err error) {
	all, err := shared.Clusters(ctx, root)
	found := slices.DeleteFunc(all, func(cluster string) bool {
		return cluster != reference && !strings.HasPrefix(cluster, reference+"/")
	})
	if len(found) > 1 {
		return "", "", Usagef("cluster %q: several are recorded; say %s", reference,
			strings.Join(found, " or "))
	}
	if _, misnamed := errors.AsType[*naming.Error](err); len(found) == 1 && (err == nil || misnamed) {
		name, platform, _ = strings.Cut(found[0], "/")
		return name, platform, nil
	}
	return "", "", err // the reference may mean one of those that are left out
}

// OutOfTree refuses a state directory inside the repository: `git clean` would delete it and all its records.
func OutOfTree(root, repository string) error {
	if repository == "" {
		return nil
	}
	in, err := filepath.Rel(ownfile.Resolve(repository), root) // root has no links
	if err == nil && filepath.IsLocal(in) {
		return Usagef("state directory %s lies inside the repository %s, where `git clean` would destroy "+
			"it; choose another with --state-dir or CASTLE_STATE_DIR", root, repository)
	}
	return nil
}

// Shared returns a folder of the state root that all clusters use. It holds no secret.
func (c *Cluster) Shared(name string) string {
	return filepath.Join(cmp.Or(c.downloads, filepath.Dir(filepath.Dir(c.Dir.Path()))), name)
}

// ConfigsDir returns the cluster's folder for exported files.
func (c *Cluster) ConfigsDir() string { return filepath.Join(c.Config.Dir, "configs") }

// ReplaceFile writes a private file atomically, unless it has this content already.
func ReplaceFile(path string, data []byte) error {
	path = filepath.Join(ownfile.Resolve(filepath.Dir(path)), filepath.Base(path)) // exports are the user's
	if old, err := ownfile.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, data)
}

// CheckExports refuses a kubeconfig or talosconfig in the state directory that runs a program or names a
// file, before providers or the user's tools read it. The state, and with it the file, may come from a store.
func (c *Cluster) CheckExports() error {
	var files [2][]byte
	for i, path := range []string{c.Dir.Kubeconfig(), c.Dir.Talosconfig()} {
		var err error
		if files[i], err = ownfile.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return CheckInline(files[0], files[1])
}

// CheckInline refuses a kubeconfig or talosconfig that runs a program or names a file.
func CheckInline(kubeconfig, talosconfig []byte) error {
	return errors.Join(kube.Inline(kubeconfig), talos.Inline(talosconfig))
}

// RemoveExports removes the exported files of a cluster that is gone.
func (c *Cluster) RemoveExports() error {
	kubeconfigs, talosconfigs := c.Exports()
	all := append(kubeconfigs, talosconfigs...)
	return c.Dir.Removing(func() error {
		for _, path := range all {
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		return nil
	}, all...)
}

// Exports returns the paths of the exported files.
func (c *Cluster) Exports() (kubeconfigs, talosconfigs []string) {
	with := func(path string) []string {
		if c.Config.Dir == "" || c.Store.InMemory() { // the repository is unknown, or on a disk
			return []string{path}
		}
		return []string{path, filepath.Join(c.ConfigsDir(), filepath.Base(path))}
	}
	return with(c.Dir.Kubeconfig()), with(c.Dir.Talosconfig())
}

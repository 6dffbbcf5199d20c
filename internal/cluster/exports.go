package cluster

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// ConfigsDir returns the cluster's folder for exported files.
func (c *Cluster) ConfigsDir() string { return filepath.Join(c.Config.Dir, "configs") }

// ReplaceFile writes a private file atomically, unless it has this content already.
func ReplaceFile(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, data)
}

// RemoveExports removes the exported files of a cluster that is gone.
func (c *Cluster) RemoveExports() error {
	kubeconfigs, talosconfigs := c.Exports()
	for _, path := range append(kubeconfigs, talosconfigs...) {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// Exports returns the paths of the exported files.
func (c *Cluster) Exports() (kubeconfigs, talosconfigs []string) {
	with := func(path string) []string {
		if c.Config.Dir == "" { // the repository is unknown
			return []string{path}
		}
		return []string{path, filepath.Join(c.ConfigsDir(), filepath.Base(path))}
	}
	return with(c.Dir.Kubeconfig()), with(c.Dir.Talosconfig())
}

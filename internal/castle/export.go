package castle

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// export writes the kubeconfig and talosconfig that the platform said to the
// state directory, where the generated providers read them, and copies them to
// the cluster's configs folder for its user.
func (r *run) export() error {
	target := r.said.target()
	for _, file := range []struct {
		path string
		data []byte
	}{
		{r.dir.Kubeconfig(), target.Kubeconfig},
		{r.dir.Talosconfig(), target.Talosconfig},
	} {
		if file.data == nil {
			continue
		}
		for _, path := range []string{file.path, filepath.Join(r.configs(), filepath.Base(file.path))} {
			if err := replace(path, file.data); err != nil {
				return err
			}
		}
	}
	return nil
}

// configs is the cluster's folder for exported files.
func (c *Castle) configs() string { return filepath.Join(c.cluster.Dir, "configs") }

func replace(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, data)
}

// withdraw removes the exported files: the cluster that they lead to is gone.
func (c *Castle) withdraw() error {
	kubeconfigs, talosconfigs := c.exports()
	for _, path := range append(kubeconfigs, talosconfigs...) {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// exports are the paths of the exported files.
func (c *Castle) exports() (kubeconfigs, talosconfigs []string) {
	with := func(path string) []string {
		if c.cluster.Dir == "" { // nobody knows where the repository was
			return []string{path}
		}
		return []string{path, filepath.Join(c.configs(), filepath.Base(path))}
	}
	return with(c.dir.Kubeconfig()), with(c.dir.Talosconfig())
}

package fleet

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ephemeral-castle/castle/internal/outline"
)

// Digests identify the configurations of clusters: castle's version, and the files of the repository that
// each depends on. What clusters share is read once.
type Digests struct {
	repository, castle string
	known              map[string]string // by dependency
	modules            outline.Modules
}

// NewDigests reads nothing yet. castle is its version.
func NewDigests(repository, castle string) *Digests {
	return &Digests{repository: repository, castle: castle, known: map[string]string{},
		modules: outline.Modules{}}
}

// Of returns the digest of a cluster, such as "blue/proxmox".
func (d *Digests) Of(cluster string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, d.castle)
	file, _ := outline.Read(d.repository, cluster) //nolint:errcheck // the castle of the cluster reports it
	for _, p := range file.Dependencies(d.modules) {
		if _, known := d.known[p]; !known {
			var err error
			if d.known[p], err = digest(d.repository + "/" + p); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(h, "%q %s\n", p, d.known[p])
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// digest identifies a file, or what is in a folder, there or not. Links to files are followed, as castle
// does, and configs/, which castle writes itself, is left out.
func digest(root string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir() && name != root && (e.Name() == "configs" || strings.HasPrefix(e.Name(), ".")):
			return fs.SkipDir
		}
		info, err := os.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // a link to nothing
			return nil
		case err != nil || !info.Mode().IsRegular(): // a folder, a socket
			return err
		}
		data, err := os.ReadFile(name)
		fmt.Fprintf(h, "%q %x\n", strings.TrimPrefix(name, filepath.Clean(root)), sha256.Sum256(data))
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

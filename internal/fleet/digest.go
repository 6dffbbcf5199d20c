package fleet

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/outline"
)

// Digests identify the configurations of clusters: castle's version, and the files of the repository that
// each uses. What clusters share is read once.
type Digests struct {
	repository string
	shared     func() (string, error)
}

// NewDigests reads nothing yet. castle is its version.
func NewDigests(repository, castle string) *Digests {
	return &Digests{repository: repository, shared: sync.OnceValues(func() (string, error) {
		h := sha256.New()
		fmt.Fprintln(h, castle)
		err := addFiles(h, repository, "castle.hcl", "stages", "templates", "clusters/*.tfvars")
		return fmt.Sprintf("%x", h.Sum(nil)), err
	})}
}

// Of returns the digest of a cluster, such as "blue/proxmox".
func (d *Digests) Of(cluster string) (string, error) {
	shared, err := d.shared()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, shared)
	err = addFiles(h, d.repository, path.Join("clusters", path.Dir(cluster), "*.tfvars"),
		path.Join("clusters", cluster))
	texts, unknown := outline.Texts(d.repository, cluster)
	for _, text := range texts {
		file := filepath.Join(d.repository, filepath.FromSlash(text))
		err = errors.Join(err, addFile(h, d.repository, file))
	}
	if unknown { // it may be any
		err = errors.Join(err, addFiles(h, d.repository, "*"))
	}
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// addFiles adds the names and contents of files and folders, of those that exist. Links are followed, as
// castle does, and configs/, which castle writes itself, is left out.
func addFiles(h hash.Hash, root string, patterns ...string) error {
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return err
		}
		slices.Sort(found)
		for _, one := range found {
			err := filepath.WalkDir(one, func(name string, d fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case d.IsDir() && (d.Name() == "configs" || strings.HasPrefix(d.Name(), ".")):
					return fs.SkipDir
				case d.IsDir():
					return nil
				}
				return addFile(h, root, name)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func addFile(h hash.Hash, root, name string) (err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) { // a link to nothing
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err // a link to a folder, a socket
	}
	content, relative := sha256.New(), strings.TrimPrefix(name, root)
	if _, err = io.Copy(content, f); err == nil {
		fmt.Fprintf(h, "%q %x\n", relative, content.Sum(nil))
	}
	return err
}

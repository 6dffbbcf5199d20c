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

// Digest returns a function that identifies the configuration of a cluster, such as "blue/proxmox": castle's
// version, and the files of the repository that it depends on. What clusters share is read once.
func Digest(repository, castle string) func(cluster string) (string, error) {
	known := map[string]string{} // by dependency
	return func(cluster string) (string, error) {
		h := sha256.New()
		fmt.Fprintln(h, castle)
		file, _ := outline.Read(repository, cluster) //nolint:errcheck // the castle of the cluster reports it
		for _, p := range file.Dependencies() {
			if _, is := known[p]; !is {
				var err error
				if known[p], err = digest(repository + "/" + p); err != nil {
					return "", err
				}
			}
			fmt.Fprintf(h, "%q %s\n", p, known[p])
		}
		return fmt.Sprintf("%x", h.Sum(nil)), nil
	}
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

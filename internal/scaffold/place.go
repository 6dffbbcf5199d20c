package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Place writes files of the repository, clusters/NAME/PLATFORM/… and stages/LAYER/NAME/…: all or none. No
// folder of them may exist.
func Place(repository string, files map[string][]byte) (err error) {
	temp, err := os.MkdirTemp(repository, ".import-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	folders := map[string]bool{}
	for name, text := range files {
		folder := path.Join(strings.SplitN(name, "/", 4)[:3]...)
		if _, err := os.Lstat(filepath.Join(repository, folder)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s already exists; nothing was changed\n  move it away", folder)
		}
		folders[folder] = true
		if err := writeFile(filepath.Join(temp, name), text, 0o644); err != nil {
			return err
		}
	}
	var placed []string
	for folder := range folders {
		to := filepath.Join(repository, folder)
		if err = makeFolder(filepath.Dir(to)); err == nil {
			err = os.Rename(filepath.Join(temp, folder), to)
		}
		if err != nil {
			break
		}
		placed = append(placed, to)
	}
	for _, folder := range placed {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}
	return err
}

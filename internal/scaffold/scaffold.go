// Package scaffold writes a user's starting point: a castle repository, clusters from templates, and copies
// of built-in stages.
//
// A template is a folder of ordinary files with {{ .answer }} where the user decides. castle reads its keys
// from the files, so a repository's own template can have its own questions. An answer has a form, and most
// have a proposal, which never collides with addresses and ids of the repository's other clusters. The
// package asks neither the user nor the network. It never overwrites a file; its output appears whole or not
// at all.
package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// ErrExists is wrapped by the error of Eject for a stage that the repository already has.
var ErrExists = errors.New("already in the repository; nothing was changed")

// Eject copies a built-in stage into the repository's stages/, which overrides it from
// then on, and returns the names of the files. The copy has the fingerprint of the
// original, so the stage stays up to date.
func Eject(repository string, library fs.FS, source string) (files []string, err error) {
	folder := path.Join("stages", source)
	to := filepath.Join(repository, filepath.FromSlash(folder))
	if _, err := os.Lstat(to); err == nil {
		return nil, fmt.Errorf("%s: %w\n  it overrides the built-in stage; move it away to eject that again",
			folder, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := makeFolder(filepath.Dir(to)); err != nil {
		return nil, err
	}
	// Not in the layer's folder, where every folder is a stage.
	temp, err := os.MkdirTemp(filepath.Join(repository, "stages"), ".eject-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	stage, err := fs.Sub(library, source)
	if err != nil {
		return nil, err
	}
	whole := filepath.Join(temp, "stage")
	names, err := copyTree(stage, whole)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		files = append(files, path.Join(folder, name))
	}
	// Renaming fails if the folder has appeared in the meantime, unless it is empty.
	return files, os.Rename(whole, to)
}

// copyTree copies the regular files of from, without .git, and returns their names.
func copyTree(from fs.FS, to string) (names []string, err error) {
	err = fs.WalkDir(from, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".git":
			return fs.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		names = append(names, name)
		return writeFile(filepath.Join(to, filepath.FromSlash(name)), data)
	})
	return names, err
}

// writeFile writes a new file of the repository, and its folder.
func writeFile(path string, data []byte) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return atomicfile.Create(path, data, 0o644)
}

// makeFolder creates a folder of the repository, and its parents, readable like the rest
// of the repository: castle's umask is for its own files.
func makeFolder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

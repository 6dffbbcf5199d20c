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
// then on, and returns the names of the files. The folder appears whole or not at all.
// The copy has the fingerprint of the original, so the stage stays up to date.
func Eject(repository string, library fs.FS, source string) (files []string, err error) {
	folder := path.Join("stages", source)
	to := filepath.Join(repository, filepath.FromSlash(folder))
	if _, err := os.Lstat(to); err == nil {
		return nil, fmt.Errorf("%s: %w\n  it overrides the built-in stage; move it away to eject that again", folder, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, dir := range []string{filepath.Join(repository, "stages"), filepath.Dir(to)} {
		if err := makeFolder(dir); err != nil {
			return nil, err
		}
	}
	// Not in the layer's folder, where every folder is a stage.
	half, err := os.MkdirTemp(filepath.Join(repository, "stages"), ".eject-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(half)) }()
	whole := filepath.Join(half, "stage")
	err = fs.WalkDir(library, source, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in, err := filepath.Rel(filepath.FromSlash(source), filepath.FromSlash(name))
		if err != nil {
			return err
		}
		copied := filepath.Join(whole, in)
		if d.IsDir() {
			return makeFolder(copied)
		}
		data, err := fs.ReadFile(library, name)
		if err != nil {
			return err
		}
		files = append(files, path.Join(folder, filepath.ToSlash(in)))
		return atomicfile.Create(copied, data, 0o644)
	})
	if err != nil {
		return nil, err
	}
	// Renaming fails if the folder has appeared in the meantime, unless it is empty.
	return files, os.Rename(whole, to)
}


package castle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

// Eject copies an embedded stage into the repository's stages/, where it stands
// in the place of the embedded one from then on. It returns the names of the
// files. The folder appears with all of them or not at all, and one that is there
// already is refused. The copy has the fingerprint of the original, so that
// nothing is applied again for it.
func Eject(repository string, library fs.FS, source string) (files []string, err error) {
	folder := path.Join("stages", source)
	to := filepath.Join(repository, filepath.FromSlash(folder))
	if _, err := os.Lstat(to); err == nil {
		return nil, &UsageError{Message: fmt.Sprintf("%s is in the repository already; nothing was changed\n"+
			"  castle uses it instead of its own; move it away to eject that one anew", folder)}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, dir := range []string{filepath.Join(repository, "stages"), filepath.Dir(to)} {
		if err := scaffold.MakeFolder(dir); err != nil {
			return nil, err
		}
	}
	// Not in the layer's folder: every folder there is a stage.
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
			return scaffold.MakeFolder(copied)
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
	// Renaming onto a folder that has appeared meanwhile fails, unless that is empty.
	return files, os.Rename(whole, to)
}


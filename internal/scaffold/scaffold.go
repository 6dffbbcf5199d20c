// Package scaffold writes a user's starting point: a repository, clusters from templates, copies of stages. A
// template is a folder of ordinary files with ${answer} where the user decides, in the language of
// Terraform's templatefile; castle reads its keys from the files. An answer has a form, and most have a
// proposal, which never collides with the repository's other clusters. The package never overwrites a file;
// its output appears whole or not at all.
package scaffold

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/folders"
)

//go:embed castle.hcl
var castleFile string

// ignored are the lines of .gitignore that keep keys, states, secrets and saved plans,
// which hold all of these, out of Git.
var ignored = []string{"**/configs/", "*.tfstate*", "secrets.tfvars", "*.castleplan*"}

const ignoreComment = "# Keys, state and secrets of the clusters: never in Git.\n"

// Initialized is the result of Init.
type Initialized struct {
	Made      []string // "clusters/", ".gitignore", "castle.hcl"
	Unignored []string // lines that an existing .gitignore lacks
}

// Init initializes a castle repository in dir. Existing files stay unchanged.
func Init(dir string) (Initialized, error) {
	var done Initialized
	dir, err := filepath.Abs(dir)
	if err != nil {
		return done, err
	}
	clusters := filepath.Join(dir, "clusters")
	info, err := os.Stat(clusters)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if above, err := folders.Find(filepath.Dir(dir)); err == nil {
			return done, fmt.Errorf("%s is inside the castle repository %s; nothing was written\n"+
				"  `castle new` adds a cluster there", dir, above)
		}
		done.Made = append(done.Made, "clusters/")
	case err != nil:
		return done, err
	case !info.IsDir():
		return done, fmt.Errorf("%s is not a directory; nothing was written", clusters)
	}
	// .gitignore comes first: it keeps the keys of every later cluster out of Git.
	for _, file := range [][2]string{
		{".gitignore", ignoreComment + strings.Join(ignored, "\n") + "\n"}, {"castle.hcl", castleFile},
	} {
		switch err := writeFile(filepath.Join(dir, file[0]), []byte(file[1]), 0o644); {
		case err == nil:
			done.Made = append(done.Made, file[0])
		case !errors.Is(err, fs.ErrExist):
			return done, err
		}
	}
	if err := makeFolder(clusters); err != nil {
		return done, err
	}
	done.Unignored, err = Unignored(dir)
	return done, err
}

// Unignored returns the lines that the .gitignore of dir lacks; all, if there is none. It
// compares literally, so that an equivalent pattern counts as missing.
func Unignored(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, ".gitignore"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lines := xslices.Map(strings.Split(string(data), "\n"), strings.TrimSpace)
	return slices.DeleteFunc(slices.Clone(ignored),
		func(line string) bool { return slices.Contains(lines, line) }), nil
}

// Ignore appends lines to the .gitignore of dir.
func Ignore(dir string, lines []string) error {
	path := filepath.Join(dir, ".gitignore")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := "\n" + ignoreComment + strings.Join(lines, "\n") + "\n"
	if len(data) > 0 && data[len(data)-1] != '\n' {
		text = "\n" + text
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// ErrExists is wrapped by the error of Eject for a stage that the repository already has.
var ErrExists = errors.New("already in the repository; nothing was changed")

// Eject copies a built-in stage into the repository's stages/, which overrides it from then on, and returns
// the names of the files. The copy has the fingerprint of the original, so the stage stays up to date.
func Eject(repository string, library fs.FS, source string) (files []string, err error) {
	folder := filepath.Join("stages", source)
	to := filepath.Join(repository, folder)
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
		files = append(files, filepath.Join(folder, name))
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
		return writeFile(filepath.Join(to, name), data, 0o644)
	})
	return names, err
}

// writeFile creates a file of the repository, and its folder.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return atomicfile.Create(path, data, mode)
}

// makeFolder creates a folder of the repository and its parents, readable like the rest of the repository.
func makeFolder(path string) error {
	defer syscall.Umask(syscall.Umask(0o022)) // castle's umask is for its own files
	return os.MkdirAll(path, 0o755)
}

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

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/config"
)

//go:embed castle.hcl
var castleFile []byte

// ignored are the lines of .gitignore that keep keys, states, secrets and saved
// plans, which hold them all, out of Git.
var ignored = []string{"**/configs/", "*.tfstate*", "secrets.tfvars", "*.castleplan*"}

// Initialized is what Init has made and what it has left alone.
type Initialized struct {
	Made []string // "clusters/", ".gitignore", "castle.hcl"
	// Unignored are the lines that a .gitignore lacks that was there before.
	Unignored []string
}

// Init makes a castle repository of dir, as far as it is none yet. Whatever is
// there stays as it is.
func Init(dir string) (Initialized, error) {
	var done Initialized
	dir, err := filepath.Abs(dir)
	if err != nil {
		return done, err
	}
	if above, err := config.FindRepository(filepath.Dir(dir)); err == nil {
		if _, err := os.Stat(filepath.Join(dir, "clusters")); errors.Is(err, fs.ErrNotExist) {
			return done, fmt.Errorf("%s lies in the castle repository %s; nothing was made\n  `castle new` makes a cluster there", dir, above)
		}
	}
	clusters := filepath.Join(dir, "clusters")
	switch info, err := os.Stat(clusters); {
	case errors.Is(err, fs.ErrNotExist):
		done.Made = append(done.Made, "clusters/")
	case err != nil:
		return done, err
	case !info.IsDir():
		return done, fmt.Errorf("%s is no folder; nothing was made", clusters)
	}
	// Before there is a cluster, there is what keeps its keys out of Git.
	for _, file := range []struct {
		name string
		data []byte
	}{{".gitignore", []byte(ignoreFile)}, {"castle.hcl", castleFile}} {
		if err := makeFolder(dir); err != nil {
			return done, err
		}
		switch err := atomicfile.Create(filepath.Join(dir, file.name), file.data, 0o644); {
		case err == nil:
			done.Made = append(done.Made, file.name)
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

var ignoreFile = "# Keys, state and secrets of the clusters: never in Git.\n" + strings.Join(ignored, "\n") + "\n"

// Unignored returns which lines the .gitignore of dir lacks; all, if there is none.
// A line that says the same in other words is for its user to know of.
func Unignored(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, ".gitignore"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return slices.DeleteFunc(slices.Clone(ignored), func(line string) bool { return slices.Contains(lines, line) }), nil
}

// Ignore appends lines to the .gitignore of dir.
func Ignore(dir string, lines []string) error {
	path := filepath.Join(dir, ".gitignore")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := "\n# Keys, state and secrets of the clusters: never in Git.\n" + strings.Join(lines, "\n") + "\n"
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

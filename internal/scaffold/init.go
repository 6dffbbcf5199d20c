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

	"github.com/ephemeral-castle/castle/internal/config"
)

//go:embed castle.hcl
var castleFile []byte

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
		if above, err := config.FindRepository(filepath.Dir(dir)); err == nil {
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
	for _, file := range []struct {
		name string
		data []byte
	}{{".gitignore", []byte(ignoreComment + strings.Join(ignored, "\n") + "\n")},
		{"castle.hcl", castleFile}} {
		switch err := writeFile(filepath.Join(dir, file.name), file.data); {
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

// Unignored returns the lines that the .gitignore of dir lacks; all, if there is none. It
// compares literally, so that an equivalent pattern counts as missing.
func Unignored(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, ".gitignore"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.TrimSpace(line))
	}
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

package state

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/process"
)

// Root returns the folder of all clusters' state directories: flag if given,
// else CASTLE_STATE_DIR, XDG_STATE_HOME/castle or HOME/.local/state/castle of environ.
func Root(flag string, environ []string) (string, error) {
	get := func(name string) string { return process.Getenv(environ, name) }
	switch {
	case flag != "":
		return filepath.Abs(flag)
	case get("CASTLE_STATE_DIR") != "":
		return filepath.Abs(get("CASTLE_STATE_DIR"))
	case filepath.IsAbs(get("XDG_STATE_HOME")): // the specification says to ignore a relative one
		return filepath.Join(get("XDG_STATE_HOME"), "castle"), nil
	case filepath.IsAbs(get("HOME")):
		return filepath.Join(get("HOME"), ".local", "state", "castle"), nil
	}
	return "", errors.New("state directory: neither CASTLE_STATE_DIR nor HOME is set")
}

// Clusters lists the clusters that have a state directory below root, each with
// its platform: blue/proxmox. It creates nothing.
func Clusters(root string) ([]string, error) {
	layouts, err := fs.Glob(os.DirFS(root), "*/*/layout") // sorted
	for i, file := range layouts {
		layouts[i] = path.Dir(file)
	}
	return layouts, err
}

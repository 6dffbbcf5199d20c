// Package scaffold makes what a user starts from: a castle repository, and in it
// clusters from templates.
//
// How it thinks: a template is a folder of ordinary files with {{ .answer }} where
// the user decides. Which answers it needs is read from the files themselves, so a
// repository's own template asks for what it mentions and nothing has to be
// declared twice. Answers have a form, and most have a proposal, which never
// collides with what another cluster of the repository claims. Nothing here asks
// the user or the network, and nothing that exists is written over: what is made
// appears whole or not at all.
package scaffold

import (
	"os"
	"path/filepath"
)

// makeFolder makes a folder of the repository, and those above it. Whoever may read
// the rest of that is to read this, too: castle's umask is for its own files.
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

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
	"errors"
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

// writeFile writes a file of the repository that is not there yet, for the same
// readers.
func writeFile(path string, data []byte) error { return write(path, data, os.O_EXCL) }

func write(path string, data []byte, how int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o644)
	if err != nil {
		return err
	}
	if how&os.O_EXCL != 0 {
		err = f.Chmod(0o644)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

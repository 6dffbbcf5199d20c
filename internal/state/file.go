package state

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// CopyFS copies a folder's files to a new one, as os.CopyFS does, and flushes them to disk.
func CopyFS(dir string, files fs.FS) error {
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return atomicfile.SyncDir(path) // a file is flushed like a folder
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

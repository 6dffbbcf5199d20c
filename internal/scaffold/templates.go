package scaffold

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// overlay lays the repository's templates/ over the embedded ones, file by file.
type overlay struct{ over, under fs.FS }

// layered returns the embedded template files, shadowed by those in the repository.
func layered(repository string, embedded fs.FS) fs.FS {
	return overlay{os.DirFS(filepath.Join(repository, "templates")), embedded}
}

// Open opens the repository's file, or else the embedded one.
func (t overlay) Open(name string) (fs.File, error) {
	f, err := t.over.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return t.under.Open(name)
	}
	return f, err
}

// ReadDir lists the files of both, each name once.
func (t overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(t.over, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	under, errUnder := fs.ReadDir(t.under, name)
	if err != nil && errUnder != nil {
		return nil, err
	}
	entries = append(entries, under...)
	byName := func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortStableFunc(entries, byName)
	return slices.CompactFunc(entries, func(a, b fs.DirEntry) bool { return a.Name() == b.Name() }), nil
}

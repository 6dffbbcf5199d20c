package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// templates lays the repository's templates/ over the embedded ones, file by file.
type templates struct{ over, under fs.FS }

// Templates are the embedded template files, shadowed by those in the repository.
func Templates(repository string, embedded fs.FS) fs.FS {
	return templates{os.DirFS(filepath.Join(repository, "templates")), embedded}
}

// Open opens the repository's file, or else the embedded one.
func (t templates) Open(name string) (fs.File, error) {
	f, err := t.over.Open(name)
	if !errors.Is(err, fs.ErrNotExist) || t.under == nil {
		return f, err
	}
	return t.under.Open(name)
}

// ReadDir lists the files of both, each name once.
func (t templates) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(t.over, name)
	if t.under == nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return entries, err
	}
	under, errUnder := fs.ReadDir(t.under, name)
	if errUnder != nil && !errors.Is(errUnder, fs.ErrNotExist) {
		return nil, errUnder
	}
	if err != nil && errUnder != nil {
		return nil, err
	}
	for _, e := range under {
		if !slices.ContainsFunc(entries, func(o fs.DirEntry) bool { return o.Name() == e.Name() }) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// place puts what was written into the view to where Flux's repository is. What is
// there stays; the cluster's part comes last, as it is what has Flux look at the rest.
// undo takes away again what place has put there.
func (s *skeleton) place(view, cluster string, files []string) (undo func() error, err error) {
	var placed []string
	undo = func() error {
		var errs []error
		for _, p := range slices.Backward(placed) {
			errs = append(errs, os.RemoveAll(p))
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo())
		}
	}()
	if _, err := os.Lstat(s.folder); errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(s.folder); err != nil {
			return undo, err
		}
		placed = append(placed, s.folder)
	}
	half, err := os.MkdirTemp(s.folder, ".new-")
	if err != nil {
		return undo, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(half)) }()
	for _, name := range files {
		if err := copyFile(filepath.Join(view, filepath.FromSlash(name)), filepath.Join(half, filepath.FromSlash(name))); err != nil {
			return undo, err
		}
	}
	for _, name := range s.units(cluster, files) {
		from, to := filepath.Join(half, filepath.FromSlash(name)), filepath.Join(s.folder, filepath.FromSlash(name))
		if _, err := os.Lstat(to); err == nil {
			return undo, fmt.Errorf("%s has appeared meanwhile; nothing was changed", to)
		}
		if err := makeFolder(filepath.Dir(to)); err != nil {
			return undo, err
		}
		if err := os.Rename(from, to); err != nil {
			return undo, err
		}
		placed = append(placed, to)
	}
	return undo, nil
}

// units are what is moved as a whole, in order.
func (s *skeleton) units(cluster string, files []string) []string {
	if s.joins {
		return []string{cluster}
	}
	last, _, _ := strings.Cut(cluster, "/")
	var units []string
	for _, name := range files {
		top, _, _ := strings.Cut(name, "/")
		if top != last && !slices.Contains(units, top) {
			units = append(units, top)
		}
	}
	return append(units, last)
}

// copyManifests copies what Flux could read of a folder, if there is one.
func copyManifests(from, to string) error {
	err := filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && e.Name() == ".git" {
			return filepath.SkipDir
		}
		name, err := filepath.Rel(from, file)
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		return copyFile(file, filepath.Join(to, name))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := makeFolder(filepath.Dir(to)); err != nil {
		return err
	}
	return atomicfile.Create(to, data, 0o644)
}

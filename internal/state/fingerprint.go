package state

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
)

// Fingerprint has one digest for each named dependency of a stage, so that it can name the parts that
// changed. The zero value is ready to use.
type Fingerprint map[string]string

// Add adds data to the part with a name. The pieces are kept apart: "ab", "c" is not "a", "bc".
func (f *Fingerprint) Add(name string, data ...[]byte) {
	h := sha256.New()
	writeSized(h, []byte((*f)[name]))
	for _, d := range data {
		writeSized(h, d)
	}
	f.set(name, h.Sum(nil))
}

// AddFS adds every file of fsys as the part name/path.
func (f *Fingerprint) AddFS(name string, fsys fs.FS) error {
	return fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		f.Add(path.Join(name, p), data)
		return nil
	})
}

// AddFile adds a file of the user. One that does not exist is a part too, which changes when it appears.
func (f *Fingerprint) AddFile(name, file string) error { return f.addFile(name, file, os.Open) }

func (f *Fingerprint) addFile(name, file string, open func(string) (*os.File, error)) error {
	r, err := open(file)
	if errors.Is(err, fs.ErrNotExist) {
		f.set(name, []byte("absent"))
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New() // streamed: it may be an image
	if _, err := io.Copy(h, r); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	f.set(name, h.Sum(nil))
	return nil
}

// Digest returns one digest of the names and contents of all files of fsys.
func Digest(fsys fs.FS) (string, error) {
	var f Fingerprint
	if err := f.AddFS("", fsys); err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(f)) {
		writeSized(h, []byte(name))
		writeSized(h, []byte(f[name]))
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

func (f *Fingerprint) set(name string, digest []byte) {
	if *f == nil {
		*f = Fingerprint{}
	}
	(*f)[name] = fmt.Sprintf("%x", digest)
}

// Changed returns the sorted names of the parts that differ from old, which may be
// nil, or that only one of the two has.
func (f *Fingerprint) Changed(old *Fingerprint) []string {
	if old == nil {
		old = new(Fingerprint)
	}
	all := Fingerprint{}
	maps.Copy(all, *old)
	maps.Copy(all, *f)
	maps.DeleteFunc(all, func(name, _ string) bool { return (*f)[name] == (*old)[name] })
	return slices.Sorted(maps.Keys(all))
}

func writeSized(w io.Writer, data []byte) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(data)))
	w.Write(size[:]) // a hash never returns an error
	w.Write(data)
}

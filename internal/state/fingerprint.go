package state

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// Fingerprint stands for everything that a stage depends on: one digest for each
// named part, so that it can say what has changed. The zero value is ready to use.
type Fingerprint struct {
	parts map[string]string
}

// Add puts data under a name; the pieces are kept apart, so that "ab", "c" is
// not "a", "bc". The same name again adds to the part.
func (f *Fingerprint) Add(name string, data ...[]byte) {
	h := sha256.New()
	put(h, []byte(f.parts[name]))
	for _, d := range data {
		put(h, d)
	}
	f.set(name, h.Sum(nil))
}

// AddFS puts every file of fsys under name/path.
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

// AddFile puts a file, or every file of a folder, under name. What does not
// exist is a part too: it changes when it appears.
func (f *Fingerprint) AddFile(name, file string) error {
	info, err := os.Stat(file)
	if os.IsNotExist(err) {
		f.set(name, []byte("absent"))
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return f.AddFS(name, os.DirFS(file))
	}
	r, err := os.Open(filepath.Clean(file))
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

// Digest is one digest of every file of fsys, by name and content.
func Digest(fsys fs.FS) (string, error) {
	var f Fingerprint
	if err := f.AddFS("", fsys); err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(f.parts)) {
		put(h, []byte(name))
		put(h, []byte(f.parts[name]))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (f *Fingerprint) set(name string, digest []byte) {
	if f.parts == nil {
		f.parts = map[string]string{}
	}
	f.parts[name] = hex.EncodeToString(digest)
}

// Changed returns the names of the parts that old, which may be nil, has not or
// has differently, and of those that only old has, sorted.
func (f *Fingerprint) Changed(old *Fingerprint) []string {
	if old == nil {
		old = new(Fingerprint)
	}
	var names []string
	for name, digest := range f.parts {
		if old.parts[name] != digest {
			names = append(names, name)
		}
	}
	for name := range old.parts {
		if _, ok := f.parts[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// MarshalJSON writes the digests by the names of their parts.
func (f *Fingerprint) MarshalJSON() ([]byte, error) { return json.Marshal(f.parts) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Fingerprint) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &f.parts) }

func put(w io.Writer, data []byte) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(data)))
	w.Write(size[:]) // a hash never returns an error
	w.Write(data)
}

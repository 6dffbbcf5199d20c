package volumes

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/lab/internal/backupstore"
)

// contents is the directory with the data of all replicas: NODE/REPLICA/head, and
// NODE/REPLICA/snapshots/NAME.
// Such a folder has a file for each block that was ever written, named by its offset and without the zeros at
// its end. A file never changes, so a copy is a link to it.
type contents string

// contentsFolder is the folder below the lab's directory with the contents.
const contentsFolder = "longhorn"

func contentsIn(dir string) contents { return contents(filepath.Join(dir, contentsFolder)) }

// RemoveReplicas deletes the data of all replicas on a node, as the loss of its disk does.
func RemoveReplicas(dir, node string) error {
	from := filepath.Join(dir, contentsFolder, node)
	lost := from + "-lost" // the operator may still write
	if err := errors.Join(os.RemoveAll(lost), os.Rename(from, lost)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(lost)
}

// of is the folder of a replica.
func (c contents) of(r *replica) string { return filepath.Join(string(c), r.Spec.NodeID, r.Name) }

func (c contents) head(r *replica) string { return filepath.Join(c.of(r), "head") }

func (c contents) snapshot(r *replica, name string) string {
	return filepath.Join(c.of(r), "snapshots", name)
}

func exists(folder string) bool {
	_, err := os.Stat(folder)
	return err == nil
}

// copyTo makes a replica a copy of another one.
func (c contents) copyTo(to, from *replica) error {
	if err := os.RemoveAll(c.of(to)); err != nil {
		return err
	}
	if err := linkAll(c.head(from), c.head(to)); err != nil {
		return err
	}
	snapshots, err := os.ReadDir(filepath.Join(c.of(from), "snapshots"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, one := range snapshots {
		if err := linkAll(c.snapshot(from, one.Name()), c.snapshot(to, one.Name())); err != nil {
			return err
		}
	}
	return nil
}

// take takes a snapshot of a replica.
func (c contents) take(r *replica, name string) error {
	if exists(c.snapshot(r, name)) {
		return nil
	}
	return linkAll(c.head(r), c.snapshot(r, name))
}

// linkAll links the files of a folder into another one, which appears with all of them.
func linkAll(from, to string) error {
	part := to + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o700)); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Link(filepath.Join(from, file.Name()), filepath.Join(part, file.Name())); err != nil {
			return err
		}
	}
	return os.Rename(part, to)
}

// write replaces a block in a folder.
func write(folder string, offset int64, block []byte) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	// A file whose name is no number is no block.
	f, err := os.CreateTemp(filepath.Dir(folder), "part-")
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.TrimRight(block, "\x00"))
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), filepath.Join(folder, strconv.FormatInt(offset, 10)))
}

// offsets are those of the blocks in a folder, in order.
func offsets(folder string) (all []int64, err error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		offset, err := strconv.ParseInt(file.Name(), 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, offset)
	}
	slices.Sort(all)
	return all, nil
}

// read returns a block of a folder without the zeros at its end; nothing if it was never written.
func read(folder string, offset int64) ([]byte, error) {
	block, err := os.ReadFile(filepath.Join(folder, strconv.FormatInt(offset, 10)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return block, err
}

// text is what the lab's application reads: everything up to the first zero.
func text(folder string) (string, error) {
	var all strings.Builder
	for offset := int64(0); ; offset += backupstore.BlockSize {
		block, err := read(folder, offset)
		if err != nil {
			return "", err
		}
		all.Write(block)
		if len(block) < backupstore.BlockSize {
			return all.String(), nil
		}
	}
}

// appendTo writes behind what the lab's application has written.
func appendTo(folder, more string) error {
	have, err := text(folder)
	if err != nil {
		return err
	}
	at := int64(len(have)) / backupstore.BlockSize * backupstore.BlockSize
	for rest := have[at:] + more; rest != ""; at += backupstore.BlockSize {
		block := rest[:min(len(rest), backupstore.BlockSize)]
		if err := write(folder, at, []byte(block)); err != nil {
			return err
		}
		rest = rest[len(block):]
	}
	return nil
}

// source is a snapshot of a replica, from which a backup is made.
type source struct {
	contents
	r    *replica
	name string
}

// Has reports whether another snapshot is there.
func (s source) Has(other string) bool { return exists(s.snapshot(s.r, other)) }

// Changed returns the offsets of the blocks that differ from another snapshot.
func (s source) Changed(since string) (changed []int64, err error) {
	all, err := offsets(s.snapshot(s.r, s.name))
	if err != nil || since == "" {
		return all, err
	}
	for _, offset := range all {
		is, err := read(s.snapshot(s.r, s.name), offset)
		if err != nil {
			return nil, err
		}
		was, err := read(s.snapshot(s.r, since), offset)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(is, was) {
			changed = append(changed, offset)
		}
	}
	return changed, nil
}

// Block reads a block with its zeros.
func (s source) Block(offset int64) ([]byte, error) {
	block, err := read(s.snapshot(s.r, s.name), offset)
	return append(block, make([]byte, backupstore.BlockSize-len(block))...), err
}

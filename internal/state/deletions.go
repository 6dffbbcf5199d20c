package state

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Deletions is the journal of what was deleted without a state: it belongs to no
// cluster and lies in <root>/nuke/<time>.jsonl. It is safe for concurrent use.
type Deletions struct {
	Path string

	mu   sync.Mutex
	file *os.File
}

// NewDeletions begins a journal.
func NewDeletions(root string) (*Deletions, error) {
	name := time.Now().UTC().Format("20060102T150405.000000") + ".jsonl"
	path, err := filepath.Abs(filepath.Join(root, "nuke", name))
	if err != nil {
		return nil, err
	}
	f, err := atomicfile.Append(path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(atomicfile.SyncDir(filepath.Dir(path)), atomicfile.SyncDir(root)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Deletions{Path: path, file: f}, nil
}

// Append writes one line, which has reached the disk when Append returns.
func (d *Deletions) Append(entry any) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.file.Write(append(line, '\n')); err != nil {
		return err
	}
	return d.file.Sync()
}

// Close closes the journal.
func (d *Deletions) Close() error { return d.file.Close() }

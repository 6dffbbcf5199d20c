package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
)

// Journal is an append-only file with one JSON value on each line. It is safe for concurrent use.
type Journal struct {
	Path string

	mu   sync.Mutex
	file *os.File
}

// openJournal opens the file for appending and flushes the folders that lead to it.
func openJournal(path string) (*Journal, error) {
	f, err := atomicfile.Append(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := errors.Join(atomicfile.SyncDir(dir), atomicfile.SyncDir(filepath.Dir(dir))); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Journal{Path: path, file: f}, nil
}

// NewDeletions begins the journal of objects that are deleted without a state. It belongs
// to no cluster and lies in <root>/nuke/<time>.jsonl.
func NewDeletions(root string) (*Journal, error) {
	name := time.Now().UTC().Format("20060102T150405.000000") + ".jsonl"
	path, err := filepath.Abs(filepath.Join(root, "nuke", name))
	if err != nil {
		return nil, err
	}
	return openJournal(path)
}

// Append writes one line. It and all before it have reached the disk when Append returns, unless it is an
// event that is not durable.
func (j *Journal) Append(entry any) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	// One write for one line: only the last line can ever be torn.
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return err
	}
	if e, is := entry.(event.Event); is && !e.Kind.Durable() {
		return nil
	}
	return j.file.Sync()
}

// Close flushes the journal to disk and closes it.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.file.Sync(), j.file.Close())
}

// eachLine calls do with each whole line of data and the rest after it. It skips a last line without an end,
// which was cut short.
func eachLine(data []byte, do func(number int, line, rest []byte) error) error {
	for number := 1; ; number++ {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return nil
		}
		if err := do(number, line, rest); err != nil {
			return err
		}
		data = rest
	}
}

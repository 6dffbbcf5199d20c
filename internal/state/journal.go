package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
)

// lineFile is an append-only file with one JSON value on each line. It is safe for
// concurrent use.
type lineFile struct {
	mu   sync.Mutex
	file *os.File
}

// openLines opens the file for appending and flushes the folders that lead to it.
func openLines(path string) (*lineFile, error) {
	f, err := atomicfile.Append(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := errors.Join(atomicfile.SyncDir(dir), atomicfile.SyncDir(filepath.Dir(dir))); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lineFile{file: f}, nil
}

// add writes one line. With sync it and all before it have reached the disk when
// add returns.
func (l *lineFile) add(v any, sync bool) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// One write for one line: only the last line can ever be torn.
	if _, err := l.file.Write(append(line, '\n')); err != nil || !sync {
		return err
	}
	return l.file.Sync()
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

// Journal is the journal of a run, with one event on each line. It is safe for
// concurrent use.
type Journal struct{ lines *lineFile }

// Append writes one event. If it is durable, it and all before it have reached the disk when Append returns.
func (j *Journal) Append(e event.Event) error { return j.lines.add(e, e.Kind.Durable()) }

// Close flushes the journal to disk and closes it.
func (j *Journal) Close() error {
	j.lines.mu.Lock()
	defer j.lines.mu.Unlock()
	return errors.Join(j.lines.file.Sync(), j.lines.file.Close())
}

func readJournal(path string) ([]event.Event, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var events []event.Event
	err = eachLine(data, func(number int, line, _ []byte) error {
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
		events = append(events, e)
		return nil
	})
	return events, err
}

// Deletions is the journal of objects that were deleted without a state. It belongs
// to no cluster and lies in <root>/nuke/<time>.jsonl. It is safe for concurrent use.
type Deletions struct {
	Path  string
	lines *lineFile
}

// NewDeletions begins a journal.
func NewDeletions(root string) (*Deletions, error) {
	name := time.Now().UTC().Format("20060102T150405.000000") + ".jsonl"
	path, err := filepath.Abs(filepath.Join(root, "nuke", name))
	if err != nil {
		return nil, err
	}
	lines, err := openLines(path)
	if err != nil {
		return nil, err
	}
	return &Deletions{Path: path, lines: lines}, nil
}

// Append writes one line, which has reached the disk when Append returns.
func (d *Deletions) Append(entry any) error { return d.lines.add(entry, true) }

// Close closes the journal.
func (d *Deletions) Close() error { return d.lines.file.Close() }

package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Journal is an append-only file with one event on each line. It is safe for
// concurrent use.
type Journal struct {
	mu   sync.Mutex
	file *os.File
}

// Append writes one event. With sync it has reached the disk when Append
// returns, and so have all before it.
func (j *Journal) Append(e event.Event, sync bool) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	// One write for one line: only the last line can ever be torn.
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return err
	}
	if !sync {
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

func readJournal(path string) ([]event.Event, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var events []event.Event
	for number := 1; ; number++ {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return events, nil
		}
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		events = append(events, e)
		data = rest
	}
}

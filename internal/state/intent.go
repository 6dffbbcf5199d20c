package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Intended is one change that Terraform was told to make.
type Intended struct {
	Address string `json:"address"`
	Type    string `json:"type"`
	Action  string `json:"action"`       // create, replace, update or delete
	ID      string `json:"id,omitempty"` // what `terraform import` takes; empty: unknown, or nobody's to take
}

// creates says that the change makes an object that its state does not know yet.
func (i Intended) creates() bool { return i.Action == "create" || i.Action == "replace" }

// Intent is what an apply or a destroy was about to do and did not come to the
// end of. A provider makes an object first and Terraform writes its state
// afterwards: whoever is killed in between leaves an object that no state knows.
// The intent is on the disk before either, and so the next run knows what to
// look for.
type Intent struct {
	Run     string    // the run that wrote it
	Began   time.Time // when
	Changes []Intended

	failed map[string]bool // Terraform said that the change came to nothing
}

// InFlight returns what may have been made though the state does not know it:
// every planned create that is not in the state and of which Terraform did not
// say that it had failed. That it was never said to have begun proves nothing:
// castle may have died before it heard so.
func (i *Intent) InFlight(inState func(address string) bool) []Intended {
	if i == nil {
		return nil
	}
	var all []Intended
	for _, c := range i.Changes {
		if c.creates() && !i.failed[c.Address] && !inState(c.Address) {
			all = append(all, c)
		}
	}
	return all
}

// Covers reports whether the change that was cut short was to make the resource
// at address as the object with this import id. One that failed counts, too: what
// a failed create leaves half-made is the stage's own. No intent covers nothing.
func (i *Intent) Covers(address, id string) bool {
	if i == nil || id == "" {
		return false
	}
	for _, c := range i.Changes {
		if c.creates() && c.Address == address && c.ID == id {
			return true
		}
	}
	return false
}

// intentLine is one line of the file: what was intended, or how far it came.
type intentLine struct {
	Run   string    `json:"run,omitzero"`
	Began time.Time `json:"began,omitzero"`
	Phase string    `json:"phase,omitempty"` // started, done or failed; none: planned
	Intended
}

func (s *Stage) intentPath() string { return filepath.Join(s.Dir(), "intent.jsonl") }

// Intent returns the change of this stage that was cut short, or nil.
func (s *Stage) Intent() (*Intent, error) {
	data, err := os.ReadFile(s.intentPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := &Intent{failed: map[string]bool{}}
	for number := 1; ; number++ {
		text, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return i, nil
		}
		var line intentLine
		if err := json.Unmarshal(text, &line); err != nil {
			if len(rest) == 0 { // the power went while it was written
				return i, nil
			}
			return nil, fmt.Errorf("%s:%d: %w; it says what a run that was cut short was making: look for that, then delete the file",
				s.intentPath(), number, err)
		}
		i.add(line)
		data = rest
	}
}

func (i *Intent) add(line intentLine) {
	switch {
	case line.Run != "":
		i.Run, i.Began = line.Run, line.Began
	case line.Phase == "":
		i.Changes = append(i.Changes, line.Intended)
	case line.Phase == "failed":
		i.failed[line.Address] = true
	}
}

// IntentLog is the intent of a change that is going on. It is safe for
// concurrent use.
type IntentLog struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

// BeginIntent writes what is about to be changed. When it returns, that has
// reached the disk; if it fails, nothing may be changed. It takes the place of
// the intent before, whose objects must have been looked for.
func (s *Stage) BeginIntent(run string, changes []Intended) (*IntentLog, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	err := encoder.Encode(intentLine{Run: run, Began: time.Now().UTC()})
	for _, c := range changes {
		err = errors.Join(err, encoder.Encode(intentLine{Intended: c}))
	}
	if err != nil {
		return nil, err
	}
	if err := makePrivate(s.Dir()); err != nil {
		return nil, err
	}
	if err := errors.Join(WriteFile(s.intentPath(), text.Bytes()), syncDir(s.dir.stages())); err != nil {
		return nil, err
	}
	f, err := openAppend(s.intentPath())
	if err != nil {
		return nil, err
	}
	return &IntentLog{file: f}, nil
}

// Note writes how far the change at an address has come: started, done or
// failed. It has reached the disk when Note returns. What could not be written
// is not lost: Close says so, and the intent then counts it as in flight.
func (l *IntentLog) Note(address, action, phase string) {
	line, err := json.Marshal(intentLine{Phase: phase, Intended: Intended{Address: address, Action: action}})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		// One write for one line: only the last line can ever be torn.
		_, err = l.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = l.file.Sync()
	}
	l.err = errors.Join(l.err, err)
}

// Close closes the file, which stays until ClearIntent.
func (l *IntentLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.file.Close())
}

// ClearIntent forgets the intent: the change came to its end, and its state was
// read and copied.
func (s *Stage) ClearIntent() error {
	err := os.Remove(s.intentPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(s.Dir()))
}

package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Intended is one change that Terraform was told to make.
type Intended struct {
	Address string `json:"address"`
	Type    string `json:"type,omitempty"`
	Action  string `json:"action"`       // create, replace, update or delete
	ID      string `json:"id,omitempty"` // what `terraform import` takes; empty if that is not known
	Before  Before `json:"before,omitempty"`
}

// Before says whether what was to be made existed already when it was intended.
type Before string

// What can be known of that; nothing, where nobody could be asked.
const (
	Absent  Before = "absent"
	Present Before = "present" // then it is somebody else's
)

// creates says that the change makes an object that its state does not know yet.
func (i Intended) creates() bool { return i.Action == "create" || i.Action == "replace" }

// Phase is how far Terraform has said that a change has come.
type Phase string

// The phases of a change. Terraform says that one is done before it writes its
// state, so that this proves nothing; a state does.
const (
	Started Phase = "started"
	Done    Phase = "done"
	Failed  Phase = "failed"
	Unsure  Phase = "unsure" // failed, but not because it existed: it may be made all the same
)

// Intent is what an apply or a destroy was about to do and did not come to the
// end of. A provider makes an object first and Terraform writes its state
// afterwards: whoever is killed in between leaves an object that no state knows.
// The intent is on the disk before either, and so the next run knows what to
// look for.
type Intent struct {
	Run     string    // the run that wrote it
	Began   time.Time // when
	New     bool      // the stage had no state then
	Changes []Intended

	phases map[string]Phase // by address
}

// InFlight returns what may have been made though the state does not know it:
// every planned create that is not in the state, unless Terraform said that it
// failed. That it was never said to have begun proves nothing, as castle may have
// died before it heard so; it counts only where an object might have been there
// before. One that was is nobody's to take.
func (i *Intent) InFlight(inState func(address string) bool) []Intended {
	if i == nil {
		return nil
	}
	var all []Intended
	for _, c := range i.Changes {
		phase := i.phases[c.Address]
		begun := c.Before == Absent || c.Before == "" && phase != ""
		if c.creates() && begun && phase != Failed && !inState(c.Address) {
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
	return slices.ContainsFunc(i.Changes, func(c Intended) bool {
		return c.creates() && c.Address == address && c.ID == id
	})
}

// Replaces reports whether the change that was cut short was to make or replace
// the resource at address, whatever it has come to.
func (i *Intent) Replaces(address string) bool {
	return i != nil && slices.ContainsFunc(i.Changes, func(c Intended) bool { return c.creates() && c.Address == address })
}

// intentLine is one line of the file: of the run, of a change, or of how far a
// change has come.
type intentLine struct {
	Run      string    `json:"run,omitempty"`
	Began    time.Time `json:"began,omitzero"`
	New      bool      `json:"new,omitempty"`
	Phase    Phase     `json:"phase,omitempty"`
	Intended `json:",omitzero"`
}

func (s *Stage) intentPath() string { return filepath.Join(s.Dir(), "intent.jsonl") }

// AddIntent adds to f whether a change of this stage was cut short, and which.
func (s *Stage) AddIntent(f *Fingerprint) error { return f.AddFile("intent", s.intentPath()) }

// Intent returns the change of this stage that was cut short, or nil.
func (s *Stage) Intent() (*Intent, error) {
	data, err := os.ReadFile(s.intentPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := &Intent{phases: map[string]Phase{}}
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
		i.Run, i.Began, i.New = line.Run, line.Began, line.New
	case line.Phase == "":
		i.Changes = append(i.Changes, line.Intended)
	case line.Action != "delete": // the other half
		i.phases[line.Address] = line.Phase
	}
}

// lines are the intent as it is kept.
func (i *Intent) lines() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	err := encoder.Encode(intentLine{Run: i.Run, Began: i.Began, New: i.New})
	for _, c := range i.Changes {
		err = errors.Join(err, encoder.Encode(intentLine{Intended: c}))
		if phase := i.phases[c.Address]; phase != "" {
			err = errors.Join(err, encoder.Encode(intentLine{Phase: phase, Intended: Intended{Address: c.Address, Action: c.Action}}))
		}
	}
	return text.Bytes(), err
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
	st, err := s.read()
	if err != nil {
		return nil, err
	}
	if err := s.writeIntent(&Intent{Run: run, Began: time.Now().UTC(), New: !st.Exists, Changes: changes}); err != nil {
		return nil, err
	}
	f, err := atomicfile.Append(s.intentPath())
	if err != nil {
		return nil, err
	}
	return &IntentLog{file: f}, nil
}

func (s *Stage) writeIntent(i *Intent) error {
	text, err := i.lines()
	if err != nil {
		return err
	}
	if err := atomicfile.MkdirPrivate(s.Dir()); err != nil {
		return err
	}
	return errors.Join(atomicfile.Write(s.intentPath(), text), atomicfile.SyncDir(s.dir.stages()))
}

// SettleIntent takes out of the intent what the state knows now: whatever becomes
// of that from here on is somebody's decision, and not something that was lost.
func (s *Stage) SettleIntent() error {
	i, err := s.Intent()
	if err != nil || i == nil {
		return err
	}
	st, err := s.State()
	if err != nil {
		return err
	}
	i.Changes = slices.DeleteFunc(i.Changes, func(c Intended) bool { return st.Has(c.Address) })
	return s.writeIntent(i)
}

// Note writes how far the change at an address has come. It has reached the disk
// when Note returns. What could not be written is not lost: Close says so, and the
// change counts as not come that far.
func (l *IntentLog) Note(address, action string, phase Phase) {
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
	return errors.Join(err, atomicfile.SyncDir(s.Dir()))
}

package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// Intended is one change of a plan that Terraform applies.
type Intended struct {
	Phase   Phase  `json:"phase,omitempty"` // as Terraform reported it; empty before that
	Address string `json:"address"`
	Type    string `json:"type,omitempty"`
	Action  string `json:"action"`       // create, replace, update or delete
	ID      string `json:"id,omitempty"` // for `terraform import`; empty if unknown
	Before  Before `json:"before,omitempty"`
	Sum     string `json:"sum,omitempty"` // of the line in the file
}

// sum returns the checksum of the change's line.
func (i Intended) sum() string {
	i.Sum = ""
	line, _ := json.Marshal(i) //nolint:errcheck // it holds strings
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE(line))
}

// Before is whether the object of a planned create existed beforehand; empty if unknown.
type Before string

// The values of Before.
const (
	Absent  Before = "absent"
	Present Before = "present" // then the object is foreign
)

// creates reports whether the change creates an object that the state does not have.
func (i Intended) creates() bool { return i.Action == "create" || i.Action == "replace" }

// Phase is how far a change has come, as Terraform reported it.
type Phase string

// The phases of a change. Terraform reports that a change is done before it writes its
// state, so only the state proves it.
const (
	Started Phase = "started"
	Done    Phase = "done"
	Failed  Phase = "failed"
	Unsure  Phase = "unsure" // failed, but the object may have been created all the same
)

// Intent lists the changes of an apply or destroy that did not finish. A provider
// creates an object before Terraform writes its state, so a run that is killed in
// between leaves an object in no state. The next run looks for it by the intent.
type Intent struct {
	Run     string     `json:"run"` // that wrote it
	Began   time.Time  `json:"began"`
	New     bool       `json:"new,omitempty"` // the stage had no state then
	Changes []Intended `json:"changes,omitempty"`
	// Provisioned are the resources of the module that have provisioners, as terraform_data.a.
	Provisioned []string `json:"provisioned,omitempty"`
	Damage      error    `json:"-"` // why its copy was read, which lacks how far each change came
}

// InFlight returns the changes that may have created an object that is not in the state. A create that
// Terraform never reported as started counts only where nothing existed before: castle may have died before
// it read the report. A failed create and an object that existed before do not count.
func (i *Intent) InFlight(inState func(address string) bool) []Intended {
	if i == nil {
		return nil
	}
	var all []Intended
	for _, c := range i.Changes {
		begun := c.Before == Absent || c.Before == "" && c.Phase != ""
		if c.creates() && begun && c.Phase != Failed && !inState(c.Address) {
			all = append(all, c)
		}
	}
	return all
}

// Unfinished returns the resources of the state whose provisioners may not have run to their end. Terraform
// writes a new object to its state before it runs them, and removes a deleted one after that: a kill in
// between leaves an object that looks finished.
func (i *Intent) Unfinished(st *State) (addresses []string) {
	if i == nil {
		return nil
	}
	for _, r := range st.Managed() {
		if r.Tainted || r.Deposed || !slices.Contains(i.Provisioned, r.Block) {
			continue
		}
		begun, done := i.New, false // a new state has only what this run created
		for _, c := range i.Changes {
			switch {
			case c.Address != r.Address:
			case c.Action == "create": // it is in the state, so it was begun
				begun, done = begun || c.Phase != Failed, done || c.Phase == Done
			case c.Action == "replace":
				begun, done = begun || c.Phase == Started, done || c.Phase == Done
			case c.Action == "delete":
				begun = begun || c.Phase == Started || c.Phase == Unsure
			}
		}
		if begun && !done {
			addresses = append(addresses, r.Address)
		}
	}
	return addresses
}

// Covers reports whether an interrupted change was to create the resource at address as the object with this
// import id. A failed one counts, too: its partly created object belongs to the stage.
func (i *Intent) Covers(address, id string) bool {
	return id != "" && i.contains(func(c Intended) bool { return c.Address == address && c.ID == id })
}

// Replaces reports whether an interrupted change was to create or replace the resource at address.
func (i *Intent) Replaces(address string) bool {
	return i.contains(func(c Intended) bool { return c.Address == address })
}

func (i *Intent) contains(match func(Intended) bool) bool {
	creates := func(c Intended) bool { return c.creates() && match(c) }
	return i != nil && slices.ContainsFunc(i.Changes, creates)
}

// add adds a line of the file: the intent as it was begun, or the phase of a change. A change that was not
// known beforehand counts from its start, without a type: an apply may plan, and a replacement deletes.
func (i *Intent) add(line []byte) error {
	var c Intended
	if err := json.Unmarshal(line, &c); err != nil {
		return err
	}
	if c.Address == "" {
		return json.Unmarshal(line, i)
	}
	if c.Sum != c.sum() {
		return errors.New("the line does not match its checksum")
	}
	known := false
	for n, old := range i.Changes {
		if old.Address == c.Address && (old.Action == "delete") == (c.Action == "delete") {
			i.Changes[n].Phase, known = c.Phase, true
		}
	}
	if !known && c.Phase == Started && (c.Action == "create" || c.Action == "delete") {
		i.Changes = append(i.Changes, c)
	}
	return nil
}

// IntentFile holds a stage's intent while it is needed.
type IntentFile struct{ stage *Stage }

// Intent returns the file of the stage's intent.
func (s *Stage) Intent() IntentFile { return IntentFile{s} }

func (f IntentFile) path() string { return filepath.Join(f.stage.Dir(), "intent.jsonl") }

// Fingerprint adds the file's digest to a fingerprint.
func (f IntentFile) Fingerprint(to *Fingerprint) error {
	return to.addFile("intent", f.path(), ownfile.Open)
}

// Read returns the intent of an interrupted change, or nil. If the file is damaged or deleted, the copy
// replaces it and every change counts as unsure.
func (f IntentFile) Read() (*Intent, error) {
	data, err := ownfile.ReadFile(f.path())
	begun, copyErr := readSealed(copyOf(f.path()))
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && errors.Is(copyErr, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !missing {
		return nil, err
	}
	i, whole, damage := readIntent(data)
	if copyErr == nil && damage == nil && !bytes.HasPrefix(data, append(begun, '\n')) {
		damage = errors.New("it is not as it was begun")
	}
	switch {
	case damage == nil && (whole || copyErr != nil): // without a copy, a power cut may have cut the last line
		if !whole {
			i.unsure()
		}
		return i, nil
	case copyErr != nil:
		return nil, &DamagedError{Path: f.path(), Reason: damage, Fix: "it lists what an interrupted run " +
			"was creating: look for those objects, then delete the file and its copy"}
	}
	i = &Intent{Damage: cmp.Or(damage, errors.New("its last line was cut short"))}
	if err := json.Unmarshal(begun, i); err != nil {
		return nil, damaged(copyOf(f.path()), err)
	}
	i.unsure()
	return i, nil
}

func readIntent(data []byte) (i *Intent, whole bool, damage error) {
	i = &Intent{}
	left := len(data)
	damage = eachLine(data, func(number int, line, rest []byte) error {
		left = len(rest)
		if err := i.add(line); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		return nil
	})
	if damage == nil && i.Run == "" {
		damage = errors.New("it names no run")
	}
	return i, left == 0, damage
}

// unsure treats each change as one that may have been made: how far it came is not known. A failed create of
// an object that may have existed before stays failed: the object may be foreign.
func (i *Intent) unsure() {
	for n, c := range i.Changes {
		if c.Phase != Failed || c.Before == Absent {
			i.Changes[n].Phase = Unsure
		}
	}
}

// Begin writes the changes of a new intent to disk, and the resources that have provisioners. If it fails,
// nothing may be changed. It replaces the previous intent, whose objects must have been looked for.
func (f IntentFile) Begin(run string, changes []Intended, provisioned []string) (*IntentLog, error) {
	st, err := f.stage.read()
	if err != nil {
		return nil, err
	}
	err = f.write(&Intent{Run: run, Began: time.Now().UTC(), New: !st.Exists, Changes: changes,
		Provisioned: provisioned})
	if err != nil {
		return nil, err
	}
	file, err := atomicfile.Append(f.path()) // write has flushed the folders
	if err != nil {
		return nil, err
	}
	return &IntentLog{journal: &Journal{Path: f.path(), file: file}}, nil
}

// BeginImport writes an intent without changes for a stage that has neither a state nor an intent: if a power
// cut leaves half of the state that an import makes, there was none before.
func (f IntentFile) BeginImport(run string) error {
	st, err := f.stage.read()
	if old, unread := f.Read(); err != nil || unread != nil || st.Exists || old != nil {
		return errors.Join(err, unread)
	}
	return f.write(&Intent{Run: run, Began: time.Now().UTC(), New: true})
}

func (f IntentFile) write(i *Intent) error {
	line, err := json.Marshal(i)
	if err != nil {
		return err
	}
	// Its copy is complete on disk, too: lines are appended to the intent, and a power cut may damage those.
	if err := writeBoth(f.path(), append(line, '\n'), line, atomicfile.WritePending,
		atomicfile.Write); err != nil {
		return err
	}
	return atomicfile.SyncDir(f.stage.dir.stages())
}

// Settle removes from the intent the resources that the state has now. If they are removed from the state
// later, they are not lost. Unfinished ones stay.
func (f IntentFile) Settle() error {
	i, err := f.Read()
	if err != nil || i == nil {
		return err
	}
	st, err := f.stage.State()
	if err != nil {
		return err
	}
	unfinished := i.Unfinished(st)
	i.Changes = slices.DeleteFunc(i.Changes, func(c Intended) bool {
		return st.Has(c.Address) && !slices.Contains(unfinished, c.Address)
	})
	return f.write(i)
}

// Clear removes the intent: the change has ended, and its state was read and copied. It flushes nothing: an
// intent that a power cut brings back lists changes that are in the state.
func (f IntentFile) Clear() error {
	return f.stage.dir.Remove(copyOf(f.path()), f.path())
}

// IntentLog appends phases to the intent of a running change. It is safe for concurrent use.
type IntentLog struct {
	journal *Journal

	mu  sync.Mutex
	err error
}

// Note writes the phase of the change at an address to disk. Close returns the write errors; the change then
// counts as not having come that far. Done is not flushed, because a change that is only Started counts the
// same: the state alone proves it.
func (l *IntentLog) Note(address, action string, phase Phase) {
	line := Intended{Phase: phase, Address: address, Action: action}
	line.Sum = line.sum()
	err := l.journal.append(line, phase != Done)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, err)
}

// Close closes the file, which stays until IntentFile.Clear.
func (l *IntentLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.journal.close(false)) // see Note
}

package state

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// Run is the folder of one run: its journal and a log for each stage.
type Run struct {
	ID  string
	dir string

	of *Dir
}

// NewRun makes an id for a run of a kind, such as "create". Ids sort by time, and a new one follows those
// that the directory has: a run of a machine whose clock was ahead would stay the newest one. Nothing is
// written before the first Log or Journal.
func (d *Dir) NewRun(kind string) *Run {
	now := time.Now().UTC()
	ids, _ := d.Runs() //nolint:errcheck // the first who needs them reports it
	for _, id := range ids {
		if last := RunStart(id); !now.Truncate(time.Millisecond).After(last) {
			now = last.Add(time.Millisecond)
		}
	}
	return d.Run(fmt.Sprintf("%s-%s-%06x", now.Format("20060102T150405.000"), kind, rand.IntN(1<<24)))
}

// OnlyReads reports whether a run changes nothing but its own journal and logs, by its id.
func OnlyReads(id string) bool { return RunKind(id) == "plan" }

// RunKind returns the kind that a run's id names; "run" if the id has another form.
func RunKind(id string) string {
	if parts := strings.Split(id, "-"); len(parts) == 3 {
		return parts[1]
	}
	return "run"
}

// runID is the form of the ids that NewRun makes.
var runID = regexp.MustCompile(`^\d{8}T\d{6}\.\d{3}-[a-z]+-[0-9a-f]{6}`)

// IsRunID reports whether NewRun made the id.
func IsRunID(id string) bool { return id != "" && runID.FindString(id) == id }

// RunStart returns the time in an id; zero if NewRun did not make it.
func RunStart(id string) time.Time {
	at, _, _ := strings.Cut(id, "-")
	t, err := time.Parse("20060102T150405.000", at)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Remove deletes everything of the run.
func (r *Run) Remove() error { return r.of.Remove(r.dir) }

// Run returns the run with an id, recorded or not.
func (d *Dir) Run(id string) *Run { return &Run{ID: id, dir: filepath.Join(d.runs(), id), of: d} }

func (d *Dir) runs() string { return filepath.Join(d.path, "runs") }

// LogPath returns the path of a stage's log, for messages.
func (r *Run) LogPath(stage string) string { return filepath.Join(r.dir, stage+".log") }

// LogTime is the format of the time, in UTC, with which each line of a log begins.
const LogTime = "2006-01-02T15:04:05.000Z"

// Log opens a stage's log for appending.
func (r *Run) Log(stage string) (io.WriteCloser, error) { return atomicfile.Append(r.LogPath(stage)) }

// ReceiptPath returns the path of the receipt of a destroy.
func (r *Run) ReceiptPath() string { return filepath.Join(r.dir, "receipt.json") }

// Journal opens the run's journal for appending.
func (r *Run) Journal() (*Journal, error) { return openJournal(r.journalPath()) }

// Events reads the run's journal, without a last line that was cut short. The error may be fs.ErrNotExist.
func (r *Run) Events() ([]event.Event, error) {
	path := r.journalPath()
	data, err := ownfile.ReadFile(path)
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

// EventsFrom reads the events of the journal after an offset, and returns the offset after the last whole
// line. Without a journal there is none.
func (r *Run) EventsFrom(offset int64) (events []event.Event, next int64, err error) {
	data, err := readFrom(r.journalPath(), offset)
	if err != nil {
		return nil, offset, err
	}
	next = offset
	err = eachLine(data, func(_ int, line, _ []byte) error {
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: after byte %d: %w", r.journalPath(), next, err)
		}
		events, next = append(events, e), next+int64(len(line))+1
		return nil
	})
	return events, next, err
}

// lastEvents is how much of the end of a journal Bounds reads: more than the event that ends a run.
const lastEvents = 1 << 18

// Bounds returns the first event of the journal and the one that ended the run, or else the last one. It
// skips the rest, however long the journal is. Without a journal the error is fs.ErrNotExist.
func (r *Run) Bounds() (first, last event.Event, err error) {
	f, err := ownfile.Open(r.journalPath())
	if err != nil {
		return first, last, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	line, err := bufio.NewReader(f).ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF): // nothing, or cut short
		return first, last, nil
	case err == nil:
		err = json.Unmarshal(line, &first)
	}
	if err != nil {
		return first, last, fmt.Errorf("%s:1: %w", r.journalPath(), err)
	}
	info, err := f.Stat()
	if err != nil {
		return first, last, err
	}
	from := max(0, info.Size()-lastEvents)
	data, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return first, last, err
	}
	last = first
	lines := bytes.Split(data[:bytes.LastIndexByte(data, '\n')+1], []byte{'\n'})
	var newest *event.Event
	for _, line := range slices.Backward(lines) {
		var e event.Event
		if len(line) == 0 || json.Unmarshal(line, &e) != nil { // the first one may be a part
			continue
		}
		if newest == nil {
			newest, last = &e, e
		}
		if e.Kind == event.RunEnded {
			return first, e, nil
		}
	}
	return first, last, nil
}

// readFrom reads a file after an offset. A file that does not exist is empty.
func readFrom(path string, offset int64) ([]byte, error) {
	f, err := ownfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// Logs returns the stages that have a log, sorted.
func (r *Run) Logs() ([]string, error) {
	entries, err := ownfile.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var stages []string
	for _, e := range entries {
		if stage, is := strings.CutSuffix(e.Name(), ".log"); is {
			stages = append(stages, stage)
		}
	}
	return stages, nil
}

// LogFrom reads a stage's log after an offset, up to its last whole line.
func (r *Run) LogFrom(stage string, offset int64) ([]byte, error) {
	data, err := readFrom(r.LogPath(stage), offset)
	return data[:bytes.LastIndexByte(data, '\n')+1], err
}

func (r *Run) journalPath() string { return filepath.Join(r.dir, "journal.jsonl") }

// DiagnosisPath returns the folder of the files about a failed stage.
func (r *Run) DiagnosisPath(stage string) string { return filepath.Join(r.dir, "diagnosis", stage) }

// KeepDiagnosis writes files, by slash-separated name, into that folder. It refuses a name that leads out.
func (r *Run) KeepDiagnosis(stage string, files map[string][]byte) (err error) {
	for name, data := range files {
		local, failed := filepath.Localize(name)
		if path := filepath.Join(r.DiagnosisPath(stage), local); failed == nil {
			failed = errors.Join(atomicfile.MkdirPrivate(filepath.Dir(path)),
				atomicfile.WriteUnflushed(path, data))
		}
		err = errors.Join(err, failed)
	}
	return err
}

// Journal is an append-only file with one JSON value on each line. It is safe for concurrent use.
type Journal struct {
	Path string

	mu       sync.Mutex
	file     *os.File
	unsynced bool // something that was written has perhaps not reached the disk
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
	e, is := entry.(event.Event)
	return j.append(entry, !is || e.Kind.Durable())
}

func (j *Journal) append(entry any, flush bool) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unsynced = true
	// One write for one line: only the last line can ever be torn.
	if _, err := j.file.WriteString(foreign.Text(string(line) + "\n")); err != nil {
		return err
	}
	if !flush {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.unsynced = false
	return nil
}

// Close flushes the journal to disk and closes it.
func (j *Journal) Close() error { return j.close(true) }

func (j *Journal) close(flush bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if flush && j.unsynced {
		err = j.file.Sync()
	}
	return errors.Join(err, j.file.Close())
}

// eachLine calls do with each whole line of data and the rest after it. It skips a last line without an end.
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

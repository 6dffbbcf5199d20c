package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
)

// Run is the folder of one run: its journal and a log for each stage.
type Run struct {
	ID  string
	dir string
}

// NewRun makes an id for a run of a kind, such as "create". Ids sort by time. Nothing
// is written before the first Log or Journal.
func (d *Dir) NewRun(kind string) *Run {
	now := time.Now().UTC().Format("20060102T150405.000")
	return d.Run(fmt.Sprintf("%s-%s-%06x", now, kind, rand.IntN(1<<24)))
}

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

// Remove deletes everything of the run.
func (r *Run) Remove() error { return os.RemoveAll(r.dir) }

// Run returns the run with an id, recorded or not.
func (d *Dir) Run(id string) *Run { return &Run{ID: id, dir: filepath.Join(d.runs(), id)} }

func (d *Dir) runs() string { return filepath.Join(d.path, "runs") }

// LogPath returns the path of a stage's log, for messages.
func (r *Run) LogPath(stage string) string { return filepath.Join(r.dir, stage+".log") }

// Log opens a stage's log for appending.
func (r *Run) Log(stage string) (io.WriteCloser, error) { return atomicfile.Append(r.LogPath(stage)) }

// ReceiptPath returns the path of the receipt of a destroy.
func (r *Run) ReceiptPath() string { return filepath.Join(r.dir, "receipt.json") }

// Journal opens the run's journal for appending.
func (r *Run) Journal() (*Journal, error) { return openJournal(r.journalPath()) }

// Events reads the run's journal. A last line that was cut short is left out;
// without a journal the error is fs.ErrNotExist.
func (r *Run) Events() ([]event.Event, error) {
	path := r.journalPath()
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

func (r *Run) journalPath() string { return filepath.Join(r.dir, "journal.jsonl") }

// DiagnosisPath returns the folder of the files about a failed stage.
func (r *Run) DiagnosisPath(stage string) string { return filepath.Join(r.dir, "diagnosis", stage) }

// KeepDiagnosis writes files, by slash-separated name, into that folder. It refuses a name that leads out of
// the folder.
func (r *Run) KeepDiagnosis(stage string, files map[string][]byte) (err error) {
	dir := r.DiagnosisPath(stage)
	if err := atomicfile.MkdirPrivate(dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for name, data := range files {
		err = errors.Join(err, root.MkdirAll(path.Dir(name), 0o700), root.WriteFile(name, data, 0o600))
	}
	return err
}

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

package state

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
func (d *Dir) NewRun(kind string) (*Run, error) {
	var tail [3]byte
	if _, err := rand.Read(tail[:]); err != nil {
		return nil, err
	}
	now := time.Now().UTC().Format("20060102T150405.000")
	return d.Run(fmt.Sprintf("%s-%s-%s", now, kind, hex.EncodeToString(tail[:]))), nil
}

// RunKind returns the kind that a run's id names; "run" if the id has another form.
func RunKind(id string) string {
	if parts := strings.Split(id, "-"); len(parts) == 3 {
		return parts[1]
	}
	return "run"
}

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
func (r *Run) Journal() (*Journal, error) {
	lines, err := openLines(r.journalPath())
	if err != nil {
		return nil, err
	}
	return &Journal{lines: lines}, nil
}

// Events reads the run's journal. A last line that was cut short is left out;
// without a journal the error is fs.ErrNotExist.
func (r *Run) Events() ([]event.Event, error) { return readJournal(r.journalPath()) }

func (r *Run) journalPath() string { return filepath.Join(r.dir, "journal.jsonl") }

// DiagnosisPath returns the folder of the files about a failed stage.
func (r *Run) DiagnosisPath(stage string) string { return filepath.Join(r.dir, "diagnosis", stage) }

// KeepDiagnosis writes files, by slash-separated name, into that folder.
func (r *Run) KeepDiagnosis(stage string, files map[string][]byte) error {
	var errs []error
	for name, data := range files {
		errs = append(errs, writeInside(r.DiagnosisPath(stage), filepath.FromSlash(name), data))
	}
	return errors.Join(errs...)
}

// writeInside refuses a name that leads out of dir.
func writeInside(dir, name string, data []byte) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%s: outside %s", name, dir)
	}
	path := filepath.Join(dir, name)
	if err := atomicfile.MkdirPrivate(filepath.Dir(path)); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

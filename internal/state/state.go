// Package state owns the state directory of one cluster: its layout, its lock,
// the Terraform states and their snapshots, and the journal of each run.
package state

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Root returns the folder of all clusters' state directories: flag if given,
// else CASTLE_STATE_DIR, XDG_STATE_HOME/castle or ~/.local/state/castle of environ.
func Root(flag string, environ []string) (string, error) { return "", errors.New("not there yet") }

// Dir is the state directory of one cluster on one platform.
type Dir struct{}

// Open makes the state directory if need be and refuses a layout that it does not know.
func Open(root, cluster, platform string) (*Dir, error) { return nil, errors.New("not there yet") }

// Path returns the directory's absolute path.
func (d *Dir) Path() string { return "" }

// Kubeconfig and Talosconfig return the paths of the authoritative files, there or not.
func (d *Dir) Kubeconfig() string { return "" }

// Talosconfig is described at Kubeconfig.
func (d *Dir) Talosconfig() string { return "" }

// WriteFile replaces a file that only its owner may read, atomically.
func WriteFile(path string, data []byte) error { return errors.New("not there yet") }

// Lock is a held cluster lock.
type Lock struct {
	Previous string // the run that held the lock and died, or ""
}

// HeldError says that another run that is alive holds the lock.
type HeldError struct {
	Cluster string
	Run     string
	Host    string
	PID     int
	Since   time.Time
}

func (e *HeldError) Error() string { return "" }

// Lock takes the cluster lock for a run.
func (d *Dir) Lock(run string) (*Lock, error) { return nil, errors.New("not there yet") }

// Unlock releases the lock; the run ended in order.
func (l *Lock) Unlock() error { return nil }

// EndSurvivors kills every process of a run whose own castle is dead, and returns what it ended.
func EndSurvivors(ctx context.Context, run string) ([]string, error) {
	return nil, errors.New("not there yet")
}

// Stage is one stage's part of the state directory.
type Stage struct{}

// Stage returns the part of a stage, recorded or not.
func (d *Dir) Stage(name string) *Stage { return nil }

// Stages returns the names of the stages that have a record or a state, sorted.
func (d *Dir) Stages() ([]string, error) { return nil, nil }

// Dir returns the stage's directory.
func (s *Stage) Dir() string { return "" }

// Work returns the work directory, where Terraform runs.
func (s *Stage) Work() string { return "" }

// StatePath returns the path of the Terraform state.
func (s *Stage) StatePath() string { return "" }

// Snapshot keeps a copy of the state as it is now.
func (s *Stage) Snapshot() error { return nil }

// State reads the Terraform state. With the cluster lock held, an unreadable one
// is first replaced by its newest good snapshot (State.Notice says so).
func (s *Stage) State() (*State, error) { return nil, errors.New("not there yet") }

// State is a Terraform state.
type State struct {
	Exists    bool // false before the first apply
	Serial    uint64
	Lineage   string
	SHA256    string // of the file
	Outputs   map[string]Output
	Resources []Resource
	Notice    string // what was repaired, for a person, or ""
}

// Output is one output value.
type Output struct {
	Value     cty.Value
	Sensitive bool
}

// Resource is one object in the state.
type Resource struct {
	Address    string // module.a.helm_release.b["c"], data.x.y
	Type       string
	Provider   string // source address: registry.terraform.io/hashicorp/helm
	Mode       string // managed or data
	Tainted    bool
	Attributes map[string]any
}

// Record is what destroy needs to know of a stage, whatever the configuration says by then.
type Record struct {
	Name        string          `json:"name"`
	Layer       string          `json:"layer"`
	Source      string          `json:"source"`
	Summary     string          `json:"summary,omitempty"`
	Needs       []string        `json:"needs,omitempty"`
	EndsCluster bool            `json:"ends_cluster,omitempty"`
	Persistent  bool            `json:"persistent,omitempty"`
	Volatile    bool            `json:"volatile,omitempty"`
	InCluster   []string        `json:"in_cluster,omitempty"`
	Preflights  []RecordedCheck `json:"preflights,omitempty"`
	Run         string          `json:"run"`
	Applied     time.Time       `json:"applied,omitzero"`
}

// RecordedCheck is a preflight with the values it had.
type RecordedCheck struct {
	Type   string                     `json:"type"`
	Label  string                     `json:"label"`
	Values map[string]json.RawMessage `json:"values"`
}

// NewRecordedCheck records values with their types.
func NewRecordedCheck(typ, label string, values map[string]cty.Value) (RecordedCheck, error) {
	return RecordedCheck{}, errors.New("not there yet")
}

// Decode returns the values as they were recorded.
func (c RecordedCheck) Decode() (map[string]cty.Value, error) { return nil, nil }

// Record reads the stage's record; fs.ErrNotExist if there is none.
func (s *Stage) Record() (Record, error) { return Record{}, fs.ErrNotExist }

// SetRecord replaces the stage's record.
func (s *Stage) SetRecord(r Record) error { return nil }

// Fingerprint is a digest of everything a stage depends on that remembers its parts.
// The zero value is ready.
type Fingerprint struct{}

// Add puts data under a name.
func (f *Fingerprint) Add(name string, data ...[]byte) {}

// AddFS puts every file of fsys under name/path.
func (f *Fingerprint) AddFS(name string, fsys fs.FS) error { return nil }

// AddFile puts a file, or every file of a folder, under name.
func (f *Fingerprint) AddFile(name, path string) error { return nil }

// Sum returns the digest of all parts.
func (f *Fingerprint) Sum() string { return "" }

// Changed returns the names that differ between old and f, sorted.
func (f *Fingerprint) Changed(old *Fingerprint) []string { return nil }

// Fingerprint reads the stage's fingerprint; nil if there is none.
func (s *Stage) Fingerprint() (*Fingerprint, error) { return nil, nil }

// SetFingerprint replaces the stage's fingerprint.
func (s *Stage) SetFingerprint(f *Fingerprint) error { return nil }

// ClearFingerprint removes it; done before anything changes.
func (s *Stage) ClearFingerprint() error { return nil }

// Archive moves everything of the stage to archive/<run>-<stage>.
func (s *Stage) Archive(run string) error { return nil }

// Remove deletes everything of the stage.
func (s *Stage) Remove() error { return nil }

// Run is the folder of one run: journal and logs.
type Run struct{ ID string }

// NewRun names a run of a kind (create, destroy …). Nothing is written until the first Log or Journal.
func (d *Dir) NewRun(kind string) (*Run, error) { return nil, errors.New("not there yet") }

// Runs returns the ids of all runs, the newest last.
func (d *Dir) Runs() ([]string, error) { return nil, nil }

// Run returns a run by its id.
func (d *Dir) Run(id string) *Run { return nil }

// Dir returns the run's folder.
func (r *Run) Dir() string { return "" }

// Log opens a stage's log for appending.
func (r *Run) Log(stage string) (io.WriteCloser, error) { return nil, errors.New("not there yet") }

// LogPath returns the path of a stage's log, for messages.
func (r *Run) LogPath(stage string) string { return "" }

// Journal opens the run's journal for appending.
func (r *Run) Journal() (*Journal, error) { return nil, errors.New("not there yet") }

// Events reads the run's journal; a torn last line is left out.
func (r *Run) Events() ([]event.Event, error) { return nil, nil }

// Journal is an append-only file of events, safe for concurrent use.
type Journal struct{}

// Append writes one event; with sync it is on disk when Append returns.
func (j *Journal) Append(e event.Event, sync bool) error { return nil }

// Close closes the journal.
func (j *Journal) Close() error { return nil }

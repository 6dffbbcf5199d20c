package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Record is what destroy needs to know of a stage, whatever the configuration
// says by then.
type Record struct {
	Name        string          `json:"name"`
	Layer       string          `json:"layer"`
	Source      string          `json:"source"`
	Summary     string          `json:"summary,omitempty"`
	Needs       []string        `json:"needs,omitempty"`
	EndsCluster bool            `json:"ends_cluster,omitempty"`
	Persistent  bool            `json:"persistent,omitempty"`
	Volatile    bool            `json:"volatile,omitempty"`
	InCluster   []string        `json:"in_cluster,omitempty"` // source addresses of the providers that castle wires
	Preflights  []RecordedCheck `json:"preflights,omitempty"`
	Adopts      []RecordedAdopt `json:"adopts,omitempty"`
	Castle      string          `json:"castle,omitempty"` // the version of castle that wrote this
	Module      string          `json:"module,omitempty"` // the digest of the module that was applied
	Run         string          `json:"run"`              // the run that wrote this
	Applied     time.Time       `json:"applied,omitzero"` // when an apply last ended well
}

// RecordedAdopt is the question whether the object of a resource exists, so that
// destroy can prove by it that the object is gone.
type RecordedAdopt struct {
	Address string        `json:"address"`
	Exists  RecordedCheck `json:"exists"`
	Left    bool          `json:"left,omitempty"` // a destroy has found it still there
}

// RecordedCheck is a preflight, or a question, with the values it had, so that destroy can ask
// the same again.
type RecordedCheck struct {
	Type   string                     `json:"type"`
	Label  string                     `json:"label"`
	Values map[string]json.RawMessage `json:"values"`
}

// NewRecordedCheck records values with their types.
func NewRecordedCheck(typ, label string, values map[string]cty.Value) (RecordedCheck, error) {
	c := RecordedCheck{Type: typ, Label: label, Values: map[string]json.RawMessage{}}
	for name, v := range values {
		v, _ = v.UnmarkDeep()
		data, err := ctyjson.Marshal(v, cty.DynamicPseudoType)
		if err != nil {
			return RecordedCheck{}, fmt.Errorf("%s.%s: %s: %w", typ, label, name, err)
		}
		c.Values[name] = data
	}
	return c, nil
}

// Decode returns the values as they were recorded.
func (c RecordedCheck) Decode() (map[string]cty.Value, error) {
	values := map[string]cty.Value{}
	for name, data := range c.Values {
		v, err := ctyjson.Unmarshal(data, cty.DynamicPseudoType)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %s: %w", c.Type, c.Label, name, err)
		}
		values[name] = v
	}
	return values, nil
}

// Record reads the stage's record. Without one the error is fs.ErrNotExist.
func (s *Stage) Record() (Record, error) {
	var r Record
	return r, readJSON(s.recordPath(), &r)
}

// SetRecord replaces the stage's record.
func (s *Stage) SetRecord(r Record) error { return s.writeJSON(s.recordPath(), r) }

// Fingerprint reads the stage's fingerprint; nil if there is none.
func (s *Stage) Fingerprint() (*Fingerprint, error) {
	f := new(Fingerprint)
	err := readJSON(s.fingerprintPath(), f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// SetFingerprint replaces the stage's fingerprint: its last apply was good and its gates are open.
func (s *Stage) SetFingerprint(f *Fingerprint) error {
	return s.writeJSON(s.fingerprintPath(), f)
}

// ClearFingerprint removes the fingerprint, as has to be done before anything changes.
func (s *Stage) ClearFingerprint() error {
	err := os.Remove(s.fingerprintPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(s.Dir())
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (s *Stage) writeJSON(path string, v any) error {
	if err := atomicfile.MkdirPrivate(s.Dir()); err != nil {
		return err
	}
	return writeJSON(path, v)
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.Write(path, append(data, '\n'))
}

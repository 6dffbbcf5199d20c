package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Document is a JSON file that is replaced whole. It ends with its checksum and has a copy beside it, so that
// neither a damaged nor a deleted file counts as nothing recorded.
type Document[T any] struct {
	path string
	dir  *Dir // only Clear needs it
}

// StageDocument returns a stage's document with a name such as "machines", for facts that a later run needs
// and the state lacks. It is archived with the stage.
func StageDocument[T any](s *Stage, name string) Document[T] {
	return Document[T]{filepath.Join(s.Dir(), name+".json"), s.dir}
}

// load reads the document, or its copy if it is damaged. Without both the error is fs.ErrNotExist.
func (d Document[T]) load() (*T, error) {
	data, _, err := readKept(d.path)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, damaged(d.path, err)
	}
	return v, nil
}

// Read reads the document; nil if there is none.
func (d Document[T]) Read() (*T, error) {
	v, err := d.load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return v, err
}

// Value reads the document; the zero value if there is none.
func (d Document[T]) Value() (v T, err error) {
	read, err := d.Read()
	if read != nil {
		v = *read
	}
	return v, err
}

// Write replaces the document.
func (d Document[T]) Write(v T) error { return d.write(v, atomicfile.Write) }

// WritePending replaces the document. Until the next Write, a power cut may bring the old one back.
func (d Document[T]) WritePending(v T) error { return d.write(v, atomicfile.WritePending) }

func (d Document[T]) write(v T, write func(string, []byte) error) error {
	data, err := json.MarshalIndent(&v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	return writeBoth(d.path, Seal(data), data, atomicfile.WriteUnflushed, write)
}

// Clear removes the document.
func (d Document[T]) Clear() error { return d.dir.removeKept(d.path) }

// ClusterDocument returns a document of a cluster, such as "births", which stays until it is cleared.
func ClusterDocument[T any](d *Dir, name string) Document[T] {
	return Document[T]{filepath.Join(d.path, name+".json"), d}
}

// Recreation is an unfinished recreate.
type Recreation struct {
	Run       string    `json:"run"`
	Began     time.Time `json:"began"`
	Rotate    bool      `json:"rotate"`    // destroys what the secrets layer generated, too
	Destroyed bool      `json:"destroyed"` // everything was destroyed; what exists was created since
}

// Recreation is the document of an unfinished recreate.
func (d *Dir) Recreation() Document[Recreation] {
	return Document[Recreation]{filepath.Join(d.path, "recreate.json"), d}
}

// Restoration is an unfinished restore of etcd.
type Restoration struct {
	Backup string `json:"backup"` // its id
	// Founding: etcd was bootstrapped from the backup, or was about to be. What has a quorum since is that.
	Founding bool `json:"founding"`
	// Boots are the boot ids, by name, of the machines that have to restart, from before.
	Boots map[string]string `json:"boots"`
}

// Restoration is the document of an unfinished restore.
func (d *Dir) Restoration() Document[Restoration] {
	return Document[Restoration]{filepath.Join(d.path, "restore.json"), d}
}

// Record holds the facts of a stage that a destroy needs, independent of the later configuration.
type Record struct {
	Name        string          `json:"name"`
	Layer       string          `json:"layer"`
	Source      string          `json:"source"`
	Summary     string          `json:"summary,omitempty"`
	Needs       []string        `json:"needs,omitempty"`
	EndsCluster bool            `json:"ends_cluster,omitempty"`
	Persistent  bool            `json:"persistent,omitempty"`
	Volatile    bool            `json:"volatile,omitempty"`
	InCluster   []string        `json:"in_cluster,omitempty"` // providers that castle configures
	Preflights  []RecordedCheck `json:"preflights,omitempty"`
	Adopts      []RecordedAdopt `json:"adopts,omitempty"`
	Survives    []RecordedCheck `json:"survives,omitempty"` // data that castle saves before a destroy
	Castle      string          `json:"castle,omitempty"`   // the version of castle that wrote this
	Program     string          `json:"program,omitempty"`  // that applies the stage: terraform, or tofu
	Module      string          `json:"module,omitempty"`   // the digest of the module that was applied
	Files       Fingerprint     `json:"files,omitempty"`    // of the copy of that module, without its inputs
	Run         string          `json:"run"`                // the run that wrote this
	Created     time.Time       `json:"created,omitzero"`   // when the stage was first recorded
	Applied     time.Time       `json:"applied,omitzero"`   // when an apply last succeeded
}

// RecordedAdopt is the check whether a resource's object exists, by which destroy proves that it is gone.
type RecordedAdopt struct {
	Address string        `json:"address"`
	Exists  RecordedCheck `json:"exists"`
	Left    bool          `json:"left,omitempty"` // a destroy found that it still exists
}

// RecordedCheck is a preflight or a check with its values, so that destroy can run it again.
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

// Decode returns the recorded values.
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

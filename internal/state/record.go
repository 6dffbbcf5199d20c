package state

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

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
	Castle      string          `json:"castle,omitempty"` // the version of castle that wrote this
	Module      string          `json:"module,omitempty"` // the digest of the module that was applied
	Run         string          `json:"run"`              // the run that wrote this
	Applied     time.Time       `json:"applied,omitzero"` // when an apply last succeeded
}

// RecordedAdopt is the check whether the object of a resource exists, by which
// destroy proves that it is gone.
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

package applied

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// ready is how a stage was when it was ready last: its module, and its inputs that are not sensitive.
type ready struct {
	Since  time.Time                  `json:"since"`
	Module string                     `json:"module"`
	Inputs map[string]json.RawMessage `json:"inputs"`
}

func readyOf(dir *state.Stage) state.Document[*ready] {
	return state.StageDocument[*ready](dir, "ready")
}

// RecordReady records the inputs of a stage that is ready. Going back from a later change needs them.
func RecordReady(r *run.Run, s *config.Stage) error {
	inputs, err := r.Inputs(s)
	if err != nil {
		return err
	}
	now := &ready{Since: time.Now().UTC(), Inputs: map[string]json.RawMessage{}}
	now.Module, err = state.Digest(s.Module)
	for name, v := range inputs {
		if err == nil && !s.Variables[name].Sensitive {
			now.Inputs[name], err = ctyjson.Marshal(v, v.Type())
		}
	}
	if err != nil {
		return err
	}
	return readyOf(r.Cluster.Dir.Stage(s.Name)).WritePending(now)
}

// LastReady returns the inputs with which a stage was ready last, the sensitive ones as they are now, and
// those that differ from the configuration. It refuses a stage that was never ready, is ready with its
// inputs, or has other code now.
func LastReady(r *run.Run, s *config.Stage) (inputs map[string]cty.Value, differs []string, err error) {
	was, err := readyOf(r.Cluster.Dir.Stage(s.Name)).Value()
	if err != nil {
		return nil, nil, err
	}
	if was == nil {
		return nil, nil, cluster.Usagef("stage %s was never ready; there is nothing to go back to", s.Name)
	}
	module, err := state.Digest(s.Module)
	if err != nil {
		return nil, nil, err
	}
	if module != was.Module {
		return nil, nil, cluster.Usagef("the code of stage %s has changed since it was ready (%s): go back "+
			"to that code, and to the values of then", s.Name, was.Since.Local().Format(time.DateTime))
	}
	if inputs, err = r.Inputs(s); err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		is := inputs[name]
		text, err := ctyjson.Marshal(is, is.Type())
		data, has := was.Inputs[name]
		if err != nil || !has || bytes.Equal(text, data) {
			continue
		}
		if inputs[name], err = ctyjson.Unmarshal(data, is.Type()); err != nil {
			return nil, nil, fmt.Errorf("%s as it was: %w", name, err)
		}
		differs = append(differs, strings.TrimSuffix(name+" = "+tfeval.Printed(inputs[name]), " = "))
	}
	if len(differs) == 0 {
		return nil, nil, cluster.Usagef("stage %s was ready last with the values that it has now", s.Name)
	}
	return inputs, differs, nil
}

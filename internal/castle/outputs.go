package castle

import (
	"errors"
	"maps"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
)

// outputs are what the stages of a run have said so far. Each stage's outputs
// are read once, from its state file, when it has been applied.
type outputs struct {
	masker *secret.Masker

	mu     sync.RWMutex
	layers map[string]map[string]cty.Value // the layer's outputs, its stages' merged
	stages map[string]map[string]cty.Value
}

func newOutputs(masker *secret.Masker) *outputs {
	return &outputs{masker: masker, layers: map[string]map[string]cty.Value{}, stages: map[string]map[string]cty.Value{}}
}

// put replaces what a stage said. Sensitive values are masked from now on.
func (o *outputs) put(s *config.Stage, said map[string]state.Output) {
	o.mu.Lock()
	defer o.mu.Unlock()
	values := map[string]cty.Value{}
	layer := maps.Clone(o.layers[s.Layer])
	if layer == nil {
		layer = map[string]cty.Value{}
	}
	for name := range o.stages[s.Name] {
		delete(layer, name)
	}
	for name, out := range said {
		if out.Sensitive || s.Outputs[name].Sensitive {
			o.masker.Add(stringsIn(out.Value)...)
		}
		values[name], layer[name] = out.Value, out.Value
	}
	o.stages[s.Name], o.layers[s.Layer] = values, layer
}

// outputsOf are what a stage has said by its state. One whose last apply was not
// good, or was another module's, may not have come to an output.
func (c *Castle) outputsOf(s *config.Stage, st *state.State) map[string]state.Output {
	dir := c.dir.Stage(s.Name)
	rec, recorded := dir.Record()
	ready, err := dir.Fingerprint().Read()
	module, digested := state.Digest(s.Module)
	if errors.Join(recorded, err, digested) != nil || ready == nil || rec.Module != module {
		return st.Outputs
	}
	return withNulls(s, st.Outputs)
}

// withNulls adds the outputs that are null: Terraform keeps none of those.
func withNulls(s *config.Stage, said map[string]state.Output) map[string]state.Output {
	all := map[string]state.Output{}
	maps.Copy(all, said)
	for name := range s.Outputs {
		if _, is := all[name]; !is {
			all[name] = state.Output{Value: cty.NullVal(cty.DynamicPseudoType)}
		}
	}
	return all
}

// scope is what expressions of s may see now.
func (o *outputs) scope(s *config.Stage) config.Scope {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return config.Scope{Outputs: maps.Clone(o.layers), Self: o.stages[s.Name]}
}

// target is the cluster as its platform describes it so far.
func (o *outputs) target() gate.Target {
	o.mu.RLock()
	defer o.mu.RUnlock()
	text := func(name string) []byte {
		v, ok := o.layers[platformLayer][name]
		if !ok || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
			return nil
		}
		return []byte(v.AsString())
	}
	return gate.Target{Kubeconfig: text(kubeconfigOutput), Talosconfig: text(talosconfigOutput)}
}

// The layers that are there before the cluster is, and the outputs in which the
// platform says how to reach it.
const (
	secretsLayer      = "secrets"
	platformLayer     = "platform"
	kubeconfigOutput  = "kubeconfig"
	talosconfigOutput = "talosconfig"
)

// stringsIn returns every string inside v, at any depth.
func stringsIn(v cty.Value) []string {
	var found []string
	err := cty.Walk(v, func(_ cty.Path, x cty.Value) (bool, error) {
		if x.IsKnown() && !x.IsNull() && x.Type() == cty.String {
			found = append(found, x.AsString())
		}
		return true, nil
	})
	if err != nil {
		return nil
	}
	return found
}

package run

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Outputs holds the outputs of a run's stages so far, each read once, from its state, after its apply.
type Outputs struct {
	masker *secret.Masker

	mu     sync.RWMutex
	stages map[*config.Stage]map[string]cty.Value
	// computed are outputs that castle knows before an apply.
	computed map[*config.Stage]map[string]cty.Value
	layers   map[string]map[string]cty.Value // by layer; a change replaces the map of its layer
	births   survivor.Births                 // a change replaces the map
}

// NewOutputs returns an empty set of outputs that adds sensitive values to masker.
func NewOutputs(masker *secret.Masker) *Outputs {
	return &Outputs{masker: masker, stages: map[*config.Stage]map[string]cty.Value{},
		computed: map[*config.Stage]map[string]cty.Value{}, layers: map[string]map[string]cty.Value{}}
}

// Compute evaluates which machines the stages have, before they are applied, for preflights and plans.
func (o *Outputs) Compute(stages []*config.Stage) {
	for _, s := range stages {
		if _, has := s.Outputs[cluster.MachinesOutput]; !has {
			continue
		}
		sc := o.Scope(s)
		module := tfeval.Read(s, s.KnownInputs(sc.Outputs, sc.Births))
		if v, known := module.Outputs()[cluster.MachinesOutput]; known {
			o.computed[s] = map[string]cty.Value{cluster.MachinesOutput: v} // without learnt addresses
			o.Set(s, nil)
		}
	}
}

// Evaluate replaces those of a stage's outputs that follow from its inputs alone.
func (o *Outputs) Evaluate(s *config.Stage) {
	all, sc := map[string]state.Output{}, o.Scope(s)
	for name, v := range sc.Self {
		all[name] = state.Output{Value: v}
	}
	module := tfeval.Read(s, s.KnownInputs(sc.Outputs, sc.Births))
	for name, v := range module.Outputs() {
		all[name] = state.Output{Value: v}
	}
	o.Set(s, all)
}

// IsComputed reports whether all values of an edge were computed.
func (o *Outputs) IsComputed(e config.Edge) bool {
	return len(e.Values) > 0 && !e.Ordered && !slices.ContainsFunc(e.Values, func(value string) bool {
		_, name, _ := strings.Cut(value, ".")
		_, is := o.computed[e.From][name]
		return !is || !o.stages[e.From][name].IsWhollyKnown()
	})
}

// Set replaces a stage's outputs. It masks sensitive values from now on.
func (o *Outputs) Set(s *config.Stage, outputs map[string]state.Output) {
	values := map[string]cty.Value{}
	for name, out := range outputs {
		if out.Sensitive || s.Outputs[name].Sensitive {
			o.masker.Add(tfeval.Strings(out.Value)...)
		}
		values[name] = out.Value
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.Copy(values, o.computed[s])
	address(values)
	o.stages[s] = values
	layer := map[string]cty.Value{}
	for from, values := range o.stages {
		if from.Layer == s.Layer {
			maps.Copy(layer, values)
		}
	}
	o.layers[s.Layer] = layer
}

// Scope returns the values that the expressions of a stage can use now: those of a layer are its stages'. The
// maps of the layers are shared, so the caller does not change them.
func (o *Outputs) Scope(s *config.Stage) config.Scope {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return config.Scope{Outputs: maps.Clone(o.layers), Self: o.stages[s], Births: o.births}
}

// Births returns how the cluster's data began, by the labels of their blocks.
func (o *Outputs) Births() survivor.Births {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.births
}

// SetBirth records how data began; nil: it is not decided.
func (r *Run) SetBirth(label string, b *survivor.Birth) error {
	r.Outputs.mu.Lock()
	defer r.Outputs.mu.Unlock()
	all := survivor.Births{}
	maps.Copy(all, r.Outputs.births)
	delete(all, label)
	if b != nil {
		all[label] = *b
	}
	if err := r.Cluster.Births().Write(all); err != nil {
		return err
	}
	r.Outputs.births = all
	return nil
}

// ProveBirth records that the data with a label have been restored, once.
func (r *Run) ProveBirth(label string) error {
	b, decided := r.Outputs.Births()[label]
	if !decided || b.From == nil || !b.Restored.IsZero() {
		return nil
	}
	b.Restored = time.Now().UTC()
	return r.SetBirth(label, &b)
}

// ClearBirths forgets how the data began: the cluster is gone.
func (r *Run) ClearBirths() error {
	r.Outputs.mu.Lock()
	defer r.Outputs.mu.Unlock()
	r.Outputs.births = nil
	return r.Cluster.Births().Clear()
}

// Target returns the cluster as the platform's outputs describe it so far.
func (o *Outputs) Target() gate.Target {
	outputs := o.Scope(nil).Outputs[cluster.PlatformLayer]
	text := func(name string) []byte {
		v, ok := outputs[name]
		if !ok || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
			return nil
		}
		return []byte(v.AsString())
	}
	return gate.Target{Kubeconfig: text(cluster.KubeconfigOutput),
		Talosconfig: text(cluster.TalosconfigOutput)}
}

// Machine is a machine of the configuration.
type Machine struct {
	Name, Address string
	ControlPlane  bool
}

// Machines returns the machines of the configuration, by their names.
func (o *Outputs) Machines() (all []Machine) {
	machines := tfeval.Map(o.Scope(nil).Outputs[cluster.PlatformLayer][cluster.MachinesOutput])
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		text := func(of string) string { return tfeval.Text(tfeval.Attribute(machines[name], of)) }
		all = append(all, Machine{name, text("address"), text("role") == "controlplane"})
	}
	return all
}

// ControlPlanes are the control planes among Machines.
func (o *Outputs) ControlPlanes() []Machine {
	return slices.DeleteFunc(o.Machines(), func(m Machine) bool { return !m.ControlPlane })
}

// RecordedOutputs returns the outputs in a stage's state. It adds null outputs only if the last apply
// succeeded with the present module: any other may have stopped before an output.
func RecordedOutputs(c *cluster.Cluster, s *config.Stage, st *state.State) map[string]state.Output {
	dir := c.Dir.Stage(s.Name)
	rec, recorded := dir.Record()
	ready, err := dir.Fingerprint().Read()
	module, digested := state.Digest(s.Module)
	if errors.Join(recorded, err, digested) != nil || ready == nil || rec.Module != module {
		return withRecorded(dir, st.Outputs)
	}
	return withRecorded(dir, WithNulls(s, st.Outputs))
}

// withRecorded sets in a stage's outputs what castle records and Terraform does not know: the runs that
// created the machines, their first leases, and the login roles that rotations have made those in use. If the
// record cannot be read, the output is unknown, and nothing is replaced.
func withRecorded(dir *state.Stage, outputs map[string]state.Output) map[string]state.Output {
	outputs = maps.Clone(outputs)
	set := func(output string, change func(map[string]cty.Value) error) {
		values := tfeval.Map(outputs[output].Value)
		if len(values) == 0 {
			return
		}
		if err := change(values); err != nil {
			outputs[output] = state.Output{Value: cty.DynamicVal}
			return
		}
		outputs[output] = state.Output{Value: cty.ObjectVal(values)}
	}
	set(cluster.InstanceOutput, func(instances map[string]cty.Value) error {
		ids, err := cluster.MachineIDs(dir).Value()
		for _, id := range ids {
			name, keyed := terraform.KeyOf(id.Address)
			if keyed && id.Instance != "" { // also of one that a step of a rollout has just made
				instances[name] = cty.StringVal(id.Instance)
			}
		}
		return err
	})
	set(cluster.LeasesOutput, func(leases map[string]cty.Value) error {
		ids, err := cluster.MachineIDs(dir).Value()
		for _, id := range ids {
			if name, keyed := terraform.KeyOf(id.Address); keyed && id.Lease != "" {
				leases[name] = cty.ObjectVal(map[string]cty.Value{"address": cty.StringVal(id.Lease)})
			}
		}
		return err
	})
	set(cluster.LoginsOutput, func(logins map[string]cty.Value) error {
		rotation, err := cluster.RotationOf(dir).Value()
		for user := range logins {
			if role := rotation.Active[user]; role != "" {
				logins[user] = cty.StringVal(role)
			}
		}
		return err
	})
	return outputs
}

// WithNulls adds the outputs that are null: Terraform stores none of those.
func WithNulls(s *config.Stage, outputs map[string]state.Output) map[string]state.Output {
	all := map[string]state.Output{}
	maps.Copy(all, outputs)
	for name := range s.Outputs {
		if _, is := all[name]; !is {
			all[name] = state.Output{Value: cty.NullVal(cty.DynamicPseudoType)}
		}
	}
	return all
}

// Instances returns the instance of what each resource in a stage's replace blocks configures, by address. It
// has none that are not known yet.
func (r *Run) Instances(s *config.Stage) map[string]string {
	all := map[string]string{}
	for _, block := range s.Replaces {
		instances, _ := block.Instances(s, r.Outputs.Scope(s)) //nolint:errcheck // see above
		for key, instance := range instances {
			all[fmt.Sprintf("%s[%q]", block.Address, key)] = instance
		}
	}
	return all
}

// ConfiguresNew reports whether this run has created everything that a stage configures.
func (r *Run) ConfiguresNew(s *config.Stage) bool {
	made := slices.Compact(slices.Sorted(maps.Values(r.Instances(s))))
	return r.ID != "" && slices.Equal(made, []string{r.ID})
}

// Inputs evaluates a stage's inputs. It masks the sensitive ones from now on.
func (r *Run) Inputs(s *config.Stage) (map[string]cty.Value, error) {
	inputs, diags := s.Inputs(r.Outputs.Scope(s))
	if diags.HasErrors() {
		return nil, diags
	}
	for name, v := range inputs {
		if s.Variables[name].Sensitive {
			r.Cluster.Masker.Add(tfeval.Strings(v)...)
		}
	}
	return inputs, nil
}

// ReadState reads a stage's state and notifies the user of any repair.
func (r *Run) ReadState(dir *state.Stage) (*state.State, error) {
	st, err := dir.State()
	if err != nil {
		return nil, err
	}
	if st.Notice != "" {
		r.Notice(st.Notice)
	}
	return st, nil
}

// export writes the platform's kubeconfig and talosconfig to the state directory, where the generated
// providers read them. It copies both to the cluster's configs folder, unless the working copy is in memory.
func (r *Run) export() error {
	target := r.Outputs.Target()
	if err := cluster.CheckInline(target.Kubeconfig, target.Talosconfig); err != nil {
		return err
	}
	var errs []error
	for path, data := range r.exports(target) {
		errs = append(errs, cluster.ReplaceFile(path, data))
		if !r.Cluster.Store.InMemory() {
			copied := filepath.Join(r.Cluster.ConfigsDir(), filepath.Base(path))
			errs = append(errs, cluster.ReplaceFile(copied, data))
		}
	}
	return errors.Join(errs...)
}

// exports are the files that the platform's outputs have, by path.
func (r *Run) exports(target gate.Target) map[string][]byte {
	all := map[string][]byte{
		r.Cluster.Dir.Kubeconfig(): target.Kubeconfig, r.Cluster.Dir.Talosconfig(): target.Talosconfig,
	}
	maps.DeleteFunc(all, func(_ string, data []byte) bool { return data == nil })
	return all
}

// Restore exports the platform's kubeconfig and talosconfig, which providers read, again if one is missing.
func (r *Run) Restore() error {
	for path := range r.exports(r.Outputs.Target()) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			if err = r.export(); err == nil {
				r.Notice(path + " was missing; castle has written it again")
			}
			return err
		}
	}
	return nil
}

// ReadOutputs reads a stage's outputs after its apply, and exports those of the platform.
func (r *Run) ReadOutputs(s *config.Stage) error {
	st, err := r.ReadState(r.Cluster.Dir.Stage(s.Name))
	if err == nil {
		err = r.holdLeases(s, st.Outputs)
	}
	if err != nil {
		return err
	}
	r.Outputs.Set(s, withRecorded(r.Cluster.Dir.Stage(s.Name), WithNulls(s, st.Outputs)))
	if s.Layer == cluster.PlatformLayer {
		return r.export()
	}
	return nil
}

// ReadRecorded reads a stage's state, and its outputs as the last apply left them.
func (r *Run) ReadRecorded(s *config.Stage) (*state.State, error) {
	st, err := r.ReadState(r.Cluster.Dir.Stage(s.Name))
	if err == nil {
		r.Outputs.Set(s, RecordedOutputs(r.Cluster, s, st))
	}
	return st, err
}

// Created returns the stages that the cluster has. One that was never created waits for a create.
func (r *Run) Created() []*config.Stage {
	return slices.DeleteFunc(slices.Clone(r.Cluster.Config.Stages), func(s *config.Stage) bool {
		st, err := r.Cluster.Dir.Stage(s.Name).State()
		return err == nil && !st.Exists
	})
}

// LastKnownStates reads the newest readable state and the outputs of every stage. The Notice of a state
// explains why it could not be read.
func (r *Run) LastKnownStates() (map[*config.Stage]*state.State, error) {
	r.Outputs.Compute(r.Cluster.Config.Stages)
	states := map[*config.Stage]*state.State{}
	for _, s := range r.Cluster.Config.Stages {
		st, err := r.Cluster.Dir.Stage(s.Name).LastKnown()
		if unreadable := new(state.UnreadableError); errors.As(err, &unreadable) {
			st = &state.State{Notice: err.Error()}
		} else if err != nil {
			return nil, err
		}
		states[s] = st
		r.Outputs.Set(s, RecordedOutputs(r.Cluster, s, st))
	}
	return states, nil
}

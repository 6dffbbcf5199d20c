package castle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/state"
)

// OutputValue is one output of a layer.
type OutputValue struct {
	Layer, Stage, Name string
	Sensitive          bool
	Value              cty.Value
}

// Outputs returns what every stage has said, by layer and name.
func (c *Castle) Outputs() ([]OutputValue, error) {
	var all []OutputValue
	for _, s := range c.cluster.Stages {
		st, err := c.dir.Stage(s.Name).State()
		if err != nil {
			return nil, err
		}
		start := len(all)
		for name, out := range st.Outputs {
			all = append(all, OutputValue{
				Layer: s.Layer, Stage: s.Name, Name: name, Value: out.Value,
				Sensitive: out.Sensitive || s.Outputs[name].Sensitive,
			})
		}
		slices.SortFunc(all[start:], func(a, b OutputValue) int { return strings.Compare(a.Name, b.Name) })
	}
	return all, nil
}

// Configs returns the paths of the kubeconfig and talosconfig that the platform
// said, and an error that says what to do where it has not yet.
func (c *Castle) Configs() (kubeconfig, talosconfig string, err error) {
	for _, path := range []string{c.dir.Kubeconfig(), c.dir.Talosconfig()} {
		if _, err := os.Stat(path); err != nil {
			return "", "", &UsageError{Message: fmt.Sprintf("%s has no kubeconfig yet; raise it with `castle create %s`", c.Name(), c.cluster.Name)}
		}
	}
	return c.dir.Kubeconfig(), c.dir.Talosconfig(), nil
}

// Terraform runs any Terraform command in a stage's work directory, with the
// inputs that a create would use, under the cluster's lock and with the state
// snapshotted before. A state that a create would repair first is refused. name
// is a stage's or that of a layer with one stage. It returns Terraform's exit code.
func (c *Castle) Terraform(ctx context.Context, name string, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	if all := placesOf(c.cluster.Stages); len(matches(all, name)) == 0 {
		return 0, unknownStage("terraform", name, all)
	}
	chosen, err := Selection{Only: []string{name}}.stages(c.cluster.Stages)
	if err != nil {
		return 0, err
	}
	if len(chosen) > 1 {
		return 0, &UsageError{Message: fmt.Sprintf("layer %s has several stages; name one: %s", name, stageNames(chosen))}
	}
	r, err := c.begin(ctx, "terraform")
	if err != nil {
		return 0, err
	}
	defer func() { err = r.end(err) }()
	s := chosen[0]
	for _, other := range c.cluster.Stages {
		if err := c.sound(other.Name); err != nil {
			return 0, err
		}
		st, err := r.readState(c.dir.Stage(other.Name))
		if err != nil {
			return 0, err
		}
		r.said.put(other, r.outputsOf(other, st))
	}
	work, err := r.open(s.Name, s.Layer)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	override := r.override(s)
	inputs, diags := s.Inputs(r.said.scope(s))
	if diags.HasErrors() {
		return 0, diags
	}
	override.Inputs = inputs
	if err := work.root.Materialise(s.Module, override); err != nil {
		return 0, err
	}
	if err := work.root.Init(ctx); err != nil {
		return 0, err
	}
	dir := c.dir.Stage(s.Name)
	if err := errors.Join(dir.Snapshot(), dir.Intent().Settle()); err != nil {
		return 0, err
	}
	before, err := r.readState(dir)
	if err != nil {
		return 0, err
	}
	r.emit(event.Event{Kind: event.StepStarted, Layer: s.Layer, Stage: s.Name, Step: "terraform"})
	code, err = work.root.Exec(ctx, args, stdin, stdout, stderr)
	return code, errors.Join(err, r.recordMade(s, work), r.doubtMarks(dir, before))
}

// doubtMarks forgets by what a stage's machines are told from others if its state
// has changed: they may have been replaced.
func (r *run) doubtMarks(dir *state.Stage, before *state.State) error {
	st, err := r.readState(dir)
	if err != nil || st.SHA256 == before.SHA256 {
		return err
	}
	return marksNote(dir).Clear()
}

// recordMade records a stage that a command made by hand, so that destroy finds it.
func (r *run) recordMade(s *config.Stage, work *workshop) error {
	dir := r.dir.Stage(s.Name)
	if _, err := dir.Record(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	st, err := r.readState(dir)
	if err != nil || !st.Exists {
		return err
	}
	return r.record(s, work)
}

func stageNames(stages []*config.Stage) string {
	names := make([]string, len(stages))
	for i, s := range stages {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

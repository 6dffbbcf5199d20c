package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Terraform runs any Terraform command in a stage's work directory and returns its exit code. It holds the
// cluster's lock, snapshots the state first and uses a create's inputs. It refuses a state that needs a
// repair. name is a stage's, or that of a layer with one stage.
func Terraform(ctx context.Context, c *cluster.Cluster, name string, args []string, stdin io.Reader,
	stdout, stderr io.Writer) (code int, err error) {
	found, err := cluster.Find("terraform", name, cluster.Refs(c.Config.Stages))
	if err == nil && len(found) > 1 {
		err = chooseStage(c, name, found, args)
	}
	if err != nil {
		return 0, err
	}
	s := c.Config.Stages[found[0]]
	ctx, r, err := run.Begin(ctx, c, "terraform", applied.CleanUp)
	if err != nil {
		return 0, err
	}
	defer func() { err = r.End(err) }()
	for _, other := range c.Config.Stages {
		if err := c.CheckState(other.Name); err != nil {
			return 0, err
		}
		if _, err := r.ReadRecorded(other); err != nil {
			return 0, err
		}
	}
	work, err := r.OpenWorkspace(s.Name, s.Layer)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	inputs, err := r.Inputs(s)
	if err != nil {
		return 0, err
	}
	if err := work.Prepare(ctx, s, inputs); err != nil {
		return 0, err
	}
	dir := c.Dir.Stage(s.Name)
	if err := errors.Join(dir.Snapshot(), dir.Intent().Settle()); err != nil {
		return 0, err
	}
	before, err := r.ReadState(dir)
	if err != nil {
		return 0, err
	}
	r.Emit(event.Event{Kind: event.StepStarted, Layer: s.Layer, Stage: s.Name, Step: "terraform"})
	code, err = work.Root.Exec(ctx, args, stdin, stdout, stderr)
	return code, errors.Join(err, recordMade(r, s, work, before))
}

// chooseStage returns the error for a layer with several stages: a command for each, and the machines' owner.
func chooseStage(c *cluster.Cluster, layer string, found []int, args []string) error {
	arguments := ""
	for _, arg := range args {
		arguments += " " + cluster.Word(arg)
	}
	var owners []int
	for _, i := range found {
		s := c.Config.Stages[i]
		hasIDs := func(p *config.Preflight) bool { return p.Type.HasMachineIDs }
		if s.EndsCluster || slices.ContainsFunc(s.Preflights, hasIDs) {
			owners = append(owners, i)
		}
	}
	text := fmt.Sprintf("layer %s has several stages; name one:", layer)
	for _, i := range found {
		text += "\n  " + c.TerraformCommand(c.Config.Stages[i].Name) + arguments
		if slices.Equal(owners, []int{i}) {
			text += "  # the only one that owns machines"
		}
	}
	return cluster.Usagef("%s", text)
}

// recordMade records a stage that a command created by hand, so that destroy finds it. It clears the recorded
// identities of the machines that the command imported: the user vouches for them.
func recordMade(r *run.Run, s *config.Stage, work *run.Workspace, before *state.State) error {
	dir := r.Cluster.Dir.Stage(s.Name)
	st, err := r.ReadState(dir)
	if err == nil && st.SHA256 != before.SHA256 {
		recorded := cluster.MachineIDs(dir)
		var ids []gate.MachineID
		ids, err = recorded.Value()
		imported := func(id gate.MachineID) bool { return st.Has(id.Address) && !before.Has(id.Address) }
		if err == nil && slices.ContainsFunc(ids, imported) {
			err = recorded.Write(slices.DeleteFunc(ids, imported))
		}
	}
	if err == nil { // the state that castle last saw is this one now
		err = dir.Snapshot()
	}
	if err != nil || !st.Exists {
		return err
	}
	if _, err := dir.Record(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return applied.Record(work, s)
}

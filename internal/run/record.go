package run

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// record keeps what destroy will need of a stage, before anything is changed:
// by then the configuration may say something else, or nothing. work holds the
// inputs that the stage is applied with.
func RecordStage(r *Run, s *config.Stage, work *Workspace) error {
	rec := state.Record{
		Name: s.Name, Layer: s.Layer, Source: s.Source, Summary: s.Summary,
		EndsCluster: s.EndsCluster, Persistent: s.Persistent, Volatile: s.Volatile,
		InCluster: s.InCluster, Castle: r.Cluster.Options.Version, Run: r.ID, Applied: time.Now(),
	}
	var err error
	if rec.Module, err = state.Digest(s.Module); err != nil {
		return err
	}
	for _, need := range s.Needs {
		rec.Needs = append(rec.Needs, need.Name)
	}
	for _, p := range s.Preflights {
		values, diags := p.Values(s, r.Outputs.Scope(s))
		if diags.HasErrors() {
			return diags
		}
		check, err := state.NewRecordedCheck(p.Type.Name, p.Label, values)
		if err != nil {
			return err
		}
		rec.Preflights = append(rec.Preflights, check)
	}
	for _, a := range s.Adopts {
		if a.Exists == nil {
			continue
		}
		values, diags := a.Exists.Values(s, r.Outputs.Scope(s))
		if diags.HasErrors() {
			return diags
		}
		if question, err := a.Exists.Type.New(a.Exists.Name(), gate.Target{}, values); err != nil ||
			question.Object.ID == "" {
			continue
		}
		check, err := state.NewRecordedCheck(a.Exists.Type.Name, "", values)
		if err != nil {
			return err
		}
		rec.Adopts = append(rec.Adopts, state.RecordedAdopt{Address: a.Address, Exists: check})
	}
	inputs, err := work.Root.Inputs()
	if err != nil {
		return err
	}
	dir := r.Cluster.Dir.Stage(s.Name)
	if err := keepModule(dir, s.Module, inputs); err != nil {
		return err
	}
	return dir.SetRecord(rec)
}

// recordFirst records a stage of which nothing is known yet, before anything is
// imported. What was made keeps the record of what made it until that is changed.
func RecordFirst(r *Run, s *config.Stage, work *Workspace, before *state.State) error {
	if _, err := r.Cluster.Dir.Stage(s.Name).Record(); before.Exists && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return RecordStage(r, s, work)
}

// keepModule copies the module that is about to be applied beside the state, with
// its inputs. The work directory will not do: the next create prepares a newer
// module there, any Terraform command other inputs, and somebody short of space may
// have removed it. A destroy must use what made what is to be destroyed.
func keepModule(dir *state.Stage, module fs.FS, inputs []byte) error {
	next := modulePath(dir) + nextSuffix
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if err := state.CopyFS(next, module); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(next, KeptInputs), inputs); err != nil {
		return err
	}
	if err := os.RemoveAll(modulePath(dir)); err != nil {
		return err
	}
	return os.Rename(next, modulePath(dir))
}

// recordedModule is the module of a stage's last apply and its inputs, nil if they
// were not kept.
func RecordedModule(dir *state.Stage) (module fs.FS, inputs []byte, err error) {
	path := RecordedPath(dir)
	if _, err := os.Stat(path); err != nil {
		return nil, nil, err
	}
	inputs, err = os.ReadFile(filepath.Join(path, KeptInputs))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	return os.DirFS(path), inputs, nil
}

// recordedPath is where the copy is. Where keepModule was killed between removing
// the old copy and putting the new one in its place, the new one is whole.
func RecordedPath(dir *state.Stage) string {
	path := modulePath(dir)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path += nextSuffix
	}
	return path
}

// recordedWork makes a stage's work directory what it was at the last apply, ready
// for Terraform.
func RecordedWorkspace(ctx context.Context, r *Run, rec state.Record) (*Workspace, error) {
	if _, _, err := RecordedModule(r.Cluster.Dir.Stage(rec.Name)); err != nil {
		return nil, err
	}
	work, err := r.OpenWorkspace(rec.Name, rec.Layer)
	if err != nil {
		return nil, err
	}
	if err := MaterialiseRecorded(ctx, r, rec, work); err != nil {
		return nil, errors.Join(err, work.Close())
	}
	return work, nil
}

// materialiseRecorded puts the module of a stage's last apply in its work directory.
func MaterialiseRecorded(ctx context.Context, r *Run, rec state.Record, work *Workspace) error {
	module, inputs, err := RecordedModule(r.Cluster.Dir.Stage(rec.Name))
	if err != nil {
		return err
	}
	override := terraform.Override{
		InCluster:  rec.InCluster,
		Kubeconfig: r.Cluster.Dir.Kubeconfig(),
		Kept:       inputs,
	}
	if err := work.Root.Materialise(module, override); err != nil {
		return err
	}
	return work.Root.Init(ctx)
}

// keptInputs lie in the module's copy, so that both are replaced in one step.
// Files of such a name never reach a work directory.
const KeptInputs = "recorded.auto.tfvars.json"

const nextSuffix = ".next"

func modulePath(dir *state.Stage) string { return filepath.Join(dir.Dir(), "module") }

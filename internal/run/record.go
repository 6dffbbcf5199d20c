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
)

// Record records the facts that a later destroy needs, before castle changes anything: the configuration
// may have changed by then. The workspace holds the inputs of the apply.
func (w *Workspace) Record(s *config.Stage) error {
	scope := w.Run.Outputs.Scope(s)
	rec := state.Record{
		Name: s.Name, Layer: s.Layer, Source: s.Source, Summary: s.Summary,
		EndsCluster: s.EndsCluster, Persistent: s.Persistent, Volatile: s.Volatile,
		InCluster: s.InCluster, Castle: w.Run.Cluster.Options.Version, Run: w.Run.ID, Applied: time.Now(),
	}
	var err error
	if rec.Module, err = state.Digest(s.Module); err != nil {
		return err
	}
	for _, need := range s.Needs {
		rec.Needs = append(rec.Needs, need.Name)
	}
	for _, p := range s.Preflights {
		values, diags := p.Values(s, scope)
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
		values, diags := a.Exists.Values(s, scope)
		if diags.HasErrors() {
			return diags
		}
		lookup, err := a.Exists.Type.New(a.Exists.Name(), gate.Target{}, values)
		if err != nil || lookup.Object.ID == "" {
			continue
		}
		check, err := state.NewRecordedCheck(a.Exists.Type.Name, "", values)
		if err != nil {
			return err
		}
		rec.Adopts = append(rec.Adopts, state.RecordedAdopt{Address: a.Address, Exists: check})
	}
	inputs, err := w.Root.Inputs()
	if err != nil {
		return err
	}
	if err := keepModule(w.Dir, s.Module, inputs); err != nil {
		return err
	}
	return w.Dir.SetRecord(rec)
}

// RecordFirst records a stage that has no record yet, before castle imports anything. An existing record
// stays until the next apply changes the stage.
func (w *Workspace) RecordFirst(s *config.Stage, before *state.State) error {
	if _, err := w.Dir.Record(); before.Exists && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return w.Record(s)
}

// keepModule copies the module and its inputs beside the state before the apply. A destroy must use the
// module that created the resources; later commands replace the work directory's content.
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

// RecordedModule returns the module of a stage's last apply and its inputs. The inputs are nil if they
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

// RecordedPath returns the folder of the module's copy. If keepModule was killed before its rename, the
// new copy is complete under its temporary name.
func RecordedPath(dir *state.Stage) string {
	path := modulePath(dir)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path += nextSuffix
	}
	return path
}

// RecordedWorkspace opens a stage's workspace with the module of its last apply, ready for Terraform.
func RecordedWorkspace(ctx context.Context, r *Run, rec state.Record) (*Workspace, error) {
	work, err := r.OpenWorkspace(rec.Name, rec.Layer)
	if err != nil {
		return nil, err
	}
	if err := work.PrepareRecorded(ctx); err != nil {
		return nil, errors.Join(err, work.Close())
	}
	return work, nil
}

// KeptInputs is the file of the inputs in the module's copy, so that one rename replaces both. Files of
// that name never reach a work directory.
const KeptInputs = "recorded.auto.tfvars.json"

const nextSuffix = ".next"

func modulePath(dir *state.Stage) string { return filepath.Join(dir.Dir(), "module") }

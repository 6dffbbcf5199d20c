package applied

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Record records the facts that a later destroy of a stage needs, before castle changes anything: the
// configuration may have changed by then. The workspace holds the inputs of the apply.
func Record(w *run.Workspace, s *config.Stage) error {
	rec, err := recordOf(w.Run, s)
	if err != nil {
		return err
	}
	rec.Applied = time.Now()
	rec.Created = rec.Applied
	if old, err := w.Dir.Record(); err == nil {
		rec.Created = cmp.Or(old.Created, old.Applied)
	}
	if rec.Module, err = state.Digest(s.Module); err != nil {
		return err
	}
	inputs, err := w.Root.Inputs()
	if err != nil {
		return err
	}
	lock, err := providers.ModuleLock(w.Dir.Work())
	if err != nil {
		return err
	}
	return recorded.Keep(w.Run.Cluster.Dir, w.Dir, rec, s.Module, inputs, lock)
}

// recordOf returns the record of a stage as it is configured.
func recordOf(r *run.Run, s *config.Stage) (state.Record, error) {
	scope := r.Outputs.Scope(s)
	product, err := r.Cluster.Product()
	if err != nil {
		return state.Record{}, err
	}
	rec := state.Record{Name: s.Name, Layer: s.Layer, Source: s.Source, Summary: s.Summary,
		EndsCluster: s.EndsCluster || resetsMachines(s, scope),
		Persistent:  s.Persistent, Volatile: s.Volatile,
		InCluster: s.InCluster,
		Castle:    r.Cluster.Options.Version, Program: product.Program, Run: r.ID}
	for _, need := range s.Needs {
		rec.Needs = append(rec.Needs, need.Name)
	}
	for _, p := range s.Preflights {
		values, diags := p.Values(s, scope)
		if diags.HasErrors() {
			return rec, diags
		}
		check, err := state.NewRecordedCheck(p.Type.Name, p.Label, values)
		if err != nil {
			return rec, err
		}
		rec.Preflights = append(rec.Preflights, check)
	}
	for _, d := range s.Survivors {
		values, diags := d.Values(s, scope)
		if diags.HasErrors() {
			return rec, diags
		}
		data, err := state.NewRecordedCheck(d.Type.Name, d.Label, values)
		if err != nil {
			return rec, err
		}
		rec.Survives = append(rec.Survives, data)
	}
	for _, a := range s.Adopts {
		if a.Exists == nil {
			continue
		}
		values, diags := a.Exists.Values(s, scope)
		if diags.HasErrors() {
			return rec, diags
		}
		lookup, err := a.Exists.Type.New(a.Exists.Name(), gate.Target{}, values)
		if err != nil || lookup.Object.ID == "" {
			continue
		}
		check, err := state.NewRecordedCheck(a.Exists.Type.Name, "", values)
		if err != nil {
			return rec, err
		}
		rec.Adopts = append(rec.Adopts, state.RecordedAdopt{Address: a.Address, Exists: check})
	}
	return rec, nil
}

// resetsMachines reports whether a stage configures machines of the platform that stay: then it resets them,
// and the cluster ends with that.
func resetsMachines(s *config.Stage, scope config.Scope) bool {
	if s.Layer != cluster.PlatformLayer || !slices.ContainsFunc(s.ResourceProviders, cluster.InMachines) {
		return false
	}
	for _, m := range tfeval.Map(scope.Outputs[cluster.PlatformLayer][cluster.MachinesOutput]) {
		if tfeval.Printed(tfeval.Attribute(m, "reset")) == "true" {
			return true
		}
	}
	return false
}

// ReadRecord reads a stage's record. If that is damaged or lost, it is rebuilt from the configuration and the
// outputs in the last known states, and damage is the reason. A stage that was never applied has none: the
// error is fs.ErrNotExist.
func ReadRecord(c *cluster.Cluster, stage string) (rec state.Record, damage, err error) {
	dir := c.Dir.Stage(stage)
	rec, err = dir.Record()
	if lost := errors.Is(err, fs.ErrNotExist); lost {
		if st, unread := dir.LastKnown(); unread != nil || !st.Exists {
			return rec, nil, errors.Join(err, unread)
		}
		err = state.LostRecord(dir)
	}
	at := slices.IndexFunc(c.Config.Stages, func(s *config.Stage) bool { return s.Name == stage })
	if !errors.As(err, new(*state.DamagedError)) || at < 0 || c.InvalidConfig != nil {
		return rec, nil, err
	}
	known := &run.Run{Cluster: c, Outputs: run.NewOutputs(c.Masker)}
	if _, unread := known.LastKnownStates(); unread != nil {
		return rec, nil, errors.Join(err, unread)
	}
	rebuilt, unknown := recordOf(known, c.Config.Stages[at])
	if unknown != nil {
		return rec, nil, fmt.Errorf("%w\n  the configuration cannot replace it: %w", err, unknown)
	}
	damage = errors.Unwrap(err)
	err = rebuilt.Files.AddFS("", c.Config.Stages[at].Module)
	if lock, has := recorded.Files(dir)[providers.ModuleFile]; has {
		rebuilt.Files[providers.ModuleFile] = lock
	}
	return rebuilt, damage, err
}

// repair restores damaged files from their copies, and damaged or lost records and recorded modules from the
// configuration. What it cannot restore stays as it is, and its reader refuses that.
func repair(r *run.Run) error {
	notices, err := r.Cluster.Dir.Repair()
	for _, text := range notices {
		r.Notice(text)
	}
	if err != nil {
		return err
	}
	for _, s := range r.Cluster.Config.Stages {
		dir := r.Cluster.Dir.Stage(s.Name)
		rec, damage, err := ReadRecord(r.Cluster, s.Name)
		if err != nil {
			continue
		}
		if damage != nil {
			if err := dir.SetRecord(rec); err != nil {
				return err
			}
			r.Notice(fmt.Sprintf("stage %s: its record was lost (%v); castle rebuilt it from the "+
				"configuration", s.Name, damage))
		}
		repaired, err := recorded.Repair(r.Cluster.Dir, dir, s.Module)
		if err != nil {
			return err
		}
		if len(repaired) > 0 {
			r.Notice(fmt.Sprintf("stage %s: files of its recorded module were lost or changed (%s); castle "+
				"took them from the repository", s.Name, strings.Join(repaired, ", ")))
		}
	}
	return nil
}

// RecordFirst records a stage that has no record yet, before castle imports anything. An existing record
// stays until the next apply changes the stage.
func RecordFirst(w *run.Workspace, s *config.Stage, before *state.State) error {
	if _, err := w.Dir.Record(); before.Exists && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return Record(w, s)
}

// gatesOf is the document of a stage's gates as its last good apply left them, each with its whole name.
func gatesOf(dir *state.Stage) state.Document[[]state.RecordedCheck] {
	return state.StageDocument[[]state.RecordedCheck](dir, "gates")
}

// RecordGates records the gates of a stage, with the values that they were checked with: a later
// configuration may change both. The fingerprint, which is written next, brings them to the disk.
func RecordGates(r *run.Run, s *config.Stage) error {
	all := []state.RecordedCheck{}
	for _, g := range s.Gates {
		values, diags := g.Values(r.Outputs.Scope(s))
		if diags.HasErrors() {
			return diags
		}
		check, err := state.NewRecordedCheck(g.Type.Name, g.Name(), values)
		if err != nil {
			return err
		}
		all = append(all, check)
	}
	return gatesOf(r.Cluster.Dir.Stage(s.Name)).WritePending(all)
}

// Gates returns the recorded gates of a stage; nil if there is no record that this castle can check.
func Gates(r *run.Run, s *config.Stage) []gate.Gate {
	recorded, err := gatesOf(r.Cluster.Dir.Stage(s.Name)).Value()
	if err != nil || recorded == nil { // damaged or lost: the configured ones have to do
		return nil
	}
	all := []gate.Gate{}
	types := cluster.GateTypes()
	for _, check := range recorded {
		at := slices.IndexFunc(types, func(t gate.Type) bool { return t.Name == check.Type })
		if at < 0 {
			return nil
		}
		values, err := check.Decode()
		if err != nil {
			return nil
		}
		bound, err := types[at].New(check.Label, r.Outputs.Target(), values)
		if err != nil {
			return nil
		}
		all = append(all, bound)
	}
	return all
}

// instancesOf is the document of the instances that a stage's last apply has configured, by address.
func instancesOf(dir *state.Stage) state.Document[map[string]string] {
	return state.StageDocument[map[string]string](dir, "instances")
}

// Outdated returns the addresses in a stage's state that have configured an earlier instance. The resource is
// unchanged, but what it had configured is gone.
func Outdated(r *run.Run, s *config.Stage, st *state.State) ([]string, error) {
	if len(s.Replaces) == 0 {
		return nil, nil
	}
	was, err := instancesOf(r.Cluster.Dir.Stage(s.Name)).Value()
	is := r.Instances(s)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(is)), func(address string) bool {
		return !st.Has(address) || is[address] == was[address]
	}), err
}

// RecordInstances records what an apply of a stage has configured, of the addresses that it has applied.
func RecordInstances(r *run.Run, s *config.Stage, isApplied func(address string) bool) error {
	all, document := r.Instances(s), instancesOf(r.Cluster.Dir.Stage(s.Name))
	if len(all) == 0 { // or they are not known
		return nil
	}
	was, err := document.Value()
	if err != nil {
		return err
	}
	for address := range all {
		if before, has := was[address]; !isApplied(address) {
			if all[address] = before; !has {
				delete(all, address)
			}
		}
	}
	return document.Write(all)
}

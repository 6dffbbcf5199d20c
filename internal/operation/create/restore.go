package create

import (
	"context"
	"errors"
	"slices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/release"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// restoreReleases applies the objects of the stage's Helm releases that are absent or changed: Terraform and
// Helm compare the record of a release only. A release that this attempt has installed needs no look.
func restoreReleases(ctx context.Context, a *attempt) error {
	st, err := a.run.ReadState(a.dir)
	if err != nil {
		return err
	}
	releases := slices.DeleteFunc(a.before.Managed(), func(r state.Resource) bool {
		return r.Type != "helm_release" || !slices.Contains(a.stage.InCluster, r.Provider) ||
			!st.Has(r.Address)
	})
	if len(releases) == 0 {
		return nil
	}
	return run.During("restore", a.work.Step("restore", func() error {
		return errors.Join(run.Each(releases, func(r state.Resource) error { return restore(ctx, a, r) })...)
	}))
}

func restore(ctx context.Context, a *attempt, r state.Resource) error {
	namespace, _ := r.Attributes["namespace"].(string)
	name, _ := r.Attributes["name"].(string)
	if a.approved != nil {
		differing, err := release.Differences(ctx, a.run.Outputs.Target(), namespace, name)
		if err != nil {
			return &unrestoredError{err}
		}
		err = a.creation.saved.checkRestore(a.approved, differing, a.creation.confirm == nil)
		if err != nil {
			return err
		}
	}
	restored, err := release.Restore(ctx, a.run.Outputs.Target(), namespace, name)
	for _, d := range restored {
		a.run.Emit(event.Event{
			Kind: event.Resource, Layer: a.stage.Layer, Stage: a.stage.Name,
			Address: r.Address, Action: "restore", Text: d.Object.String(),
		})
	}
	if err != nil && !gate.IsPermanent(err) {
		err = &unrestoredError{err}
	}
	return err
}

// unrestoredError reports that a release's object could not be restored.
type unrestoredError struct{ error }

func (e *unrestoredError) Unwrap() error { return e.error }

// Transient returns true: a webhook of the same release may not serve yet.
func (e *unrestoredError) Transient() bool { return true }

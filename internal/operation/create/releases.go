package create

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/release"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// A killed Helm leaves its release pending, and every later Helm refuses to touch a pending release. Removing
// the pending revision is safe here:
//
//   - No Helm of castle works on it: this run holds the cluster's lock and has ended the survivors of the
//     last run. A revision that changes during the plan belongs to a running Helm, and castle keeps it.
//   - It is this stage's own: its plan writes a release of this name and namespace. castle keeps all others:
//     Flux may be installing them.
//   - Nothing is lost: the objects carry Helm's annotations with the release's name, so the next install
//     adopts them. After an upgrade the previous revision is left.

const helmProvider = "registry.terraform.io/hashicorp/helm"

// findPending lists the cluster's pending Helm releases for a stage that uses Helm. If the API does not
// answer, the stage goes on: Helm then reports the releases that it refuses.
func (a *attempt) findPending(ctx context.Context) (err error) {
	if !slices.Contains(a.stage.InCluster, helmProvider) {
		return nil
	}
	a.pending, err = kube.PendingReleases(ctx, a.run.Outputs.Target())
	if err != nil && ctx.Err() == nil {
		a.run.Notice(fmt.Sprintf("%s: cannot look for unfinished releases: %v", a.stage.Name, err))
	}
	return nil
}

func isRelease(p kube.PendingRelease, typ, id string) bool {
	return typ == "helm_release" && id == p.Namespace+"/"+p.Name
}

// removePending removes the pending releases that the plan writes, and then plans again.
func (a *attempt) removePending(ctx context.Context) error {
	if a.approved.isExact() {
		return nil
	}
	freed, err := a.free(ctx)
	if freed || err != nil {
		if err = errors.Join(err, a.discard()); err == nil {
			err = a.planOnce(ctx)
		}
	}
	return run.During("plan", err)
}

// free removes the pending releases among the objects that the plan writes, and reports whether it did.
func (a *attempt) free(ctx context.Context) (freed bool, err error) {
	verbs := map[string]string{"pending-install": "installed", "pending-upgrade": "upgraded",
		"pending-rollback": "rolled back"}
	for _, p := range a.pending {
		planned := func(o terraform.Object) bool { return isRelease(p, o.Type, o.ID) }
		if !slices.ContainsFunc(a.objects, planned) {
			continue
		}
		removed, err := kube.RemovePendingRelease(ctx, a.run.Outputs.Target(), p)
		if err != nil {
			return freed, fmt.Errorf("release %s/%s: remove its unfinished revision: %w",
				p.Namespace, p.Name, err)
		}
		if removed {
			freed = true
			a.run.Notice(fmt.Sprintf("release %s/%s was being %s by a run that was killed; "+
				"its unfinished revision is removed", p.Namespace, p.Name, verbs[p.Status]))
		}
	}
	return freed, nil
}

// restoreReleases applies the objects of the stage's Helm releases that are absent or changed: Terraform and
// Helm compare the record of a release only. A release that this attempt has installed needs no look.
func (a *attempt) restoreReleases(ctx context.Context) error {
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
		return errors.Join(run.Each(releases, func(r state.Resource) error { return a.restore(ctx, r) })...)
	}))
}

func (a *attempt) restore(ctx context.Context, r state.Resource) error {
	namespace, _ := r.Attributes["namespace"].(string)
	name, _ := r.Attributes["name"].(string)
	if a.approved != nil {
		differing, err := release.Differences(ctx, a.run.Outputs.Target(), namespace, name)
		if err != nil {
			return &transientError{err}
		}
		err = a.creation.saved.checkRestore(a.approved, differing, a.creation.confirm == nil)
		if err != nil {
			return err
		}
	}
	restored, err := release.Restore(ctx, a.run.Outputs.Target(), namespace, name)
	for _, d := range restored {
		a.run.Emit(event.Event{Kind: event.Resource, Layer: a.stage.Layer, Stage: a.stage.Name,
			Address: r.Address, Action: "restore", Text: d.Object.String()})
	}
	if err != nil && !gate.IsPermanent(err) {
		err = &transientError{err} // a webhook of the same release may not serve yet
	}
	return err
}

package create

import (
	"context"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// A Helm that is killed leaves the release that it was working on pending, and
// from then on every Helm refuses to touch that release: a run that is killed in
// the middle of an install would never be completed. Nothing can end such a
// revision, but it can be removed, and that is safe here:
//
//   - No Helm of castle's is at work on it. This run holds the cluster's lock and
//     has ended whatever survived of the last one. A revision that changes while
//     the stage is planned is somebody's who is alive, and is not removed.
//   - It is this stage's own: its plan would write a release of this name in this
//     namespace. The others are not touched: Flux may be installing them.
//   - Nothing is lost. What the revision had made carries Helm's annotations with
//     the release's name, so the next install takes those objects over as its
//     own; after an upgrade the revision before it is the last one again.

const helmProvider = "registry.terraform.io/hashicorp/helm"

// pendingReleases lists the cluster's unfinished Helm releases for a stage that
// uses Helm. That nobody answers is no reason to stop: without this list Helm
// says itself what it refuses.
func (r *creation) pendingReleases(ctx context.Context, s *config.Stage) []kube.PendingRelease {
	if !slices.Contains(s.InCluster, helmProvider) {
		return nil
	}
	pending, err := kube.PendingReleases(ctx, r.run.Outputs.Target())
	if err != nil && ctx.Err() == nil {
		r.run.Notice(fmt.Sprintf("%s: cannot look for unfinished releases: %v", s.Name, err))
	}
	return pending
}

// unblock removes the pending releases that the plan would write, which makes
// these objects. It reports whether there were any: then the plan is another one.
func (r *creation) removePending(ctx context.Context, objects []terraform.Object, pending []kube.PendingRelease) (freed bool, err error) {
	for _, p := range pending {
		ours := func(o terraform.Object) bool { return o.Type == "helm_release" && o.ID == p.Namespace+"/"+p.Name }
		if !slices.ContainsFunc(objects, ours) {
			continue
		}
		removed, err := kube.RemovePendingRelease(ctx, r.run.Outputs.Target(), p)
		if err != nil {
			return freed, fmt.Errorf("release %s/%s: remove its unfinished revision: %w", p.Namespace, p.Name, err)
		}
		if removed {
			r.run.Notice(fmt.Sprintf("release %s/%s was being %s by a run that was killed; its unfinished revision is removed", p.Namespace, p.Name, statusVerb(p.Status)))
			freed = true
		}
	}
	return freed, nil
}

func statusVerb(status string) string {
	switch status {
	case "pending-upgrade":
		return "upgraded"
	case "pending-rollback":
		return "rolled back"
	}
	return "installed"
}

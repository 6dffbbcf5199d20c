package create

import (
	"context"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/kube"
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

// pendingReleases lists the cluster's pending Helm releases for a stage that uses Helm. If the API does not
// answer, the stage goes on: Helm then reports the releases that it refuses.
func (a *attempt) pendingReleases(ctx context.Context) []kube.PendingRelease {
	if !slices.Contains(a.stage.InCluster, helmProvider) {
		return nil
	}
	pending, err := kube.PendingReleases(ctx, a.run.Outputs.Target())
	if err != nil && ctx.Err() == nil {
		a.run.Notice(fmt.Sprintf("%s: cannot look for unfinished releases: %v", a.stage.Name, err))
	}
	return pending
}

func isRelease(p kube.PendingRelease, typ, id string) bool {
	return typ == "helm_release" && id == p.Namespace+"/"+p.Name
}

// removePending removes the pending releases among the objects that the plan writes, and reports whether
// there were any.
func (a *attempt) removePending(ctx context.Context, objects []terraform.Object) (freed bool, err error) {
	verbs := map[string]string{
		"pending-install": "installed", "pending-upgrade": "upgraded", "pending-rollback": "rolled back",
	}
	for _, p := range a.pending {
		planned := func(o terraform.Object) bool { return isRelease(p, o.Type, o.ID) }
		if !slices.ContainsFunc(objects, planned) {
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

package kube

import (
	"context"
	"errors"
)

// selections are all kinds that decide whether Flux has converged. Which
// sources matter is known only from what applies them, so all of them are
// watched, and a kind that this Flux does not have is asked for in vain now
// and then.
func (f *convergence) selections(ctx context.Context, a *api) ([]selection, error) {
	var (
		all  []selection
		errs []error
	)
	for _, k := range []struct{ group, kind, namespace string }{
		{kustomizeGroup, "Kustomization", f.namespace},
		{helmGroup, "HelmRelease", f.namespace},
		{sourceGroup, "GitRepository", ""},
		{sourceGroup, "HelmRepository", ""},
		{sourceGroup, "HelmChart", ""},
		{sourceGroup, "OCIRepository", ""},
		{sourceGroup, "Bucket", ""},
	} {
		r, err := a.resolveIn(ctx, k.group, k.kind)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, selection{in: r.GroupVersionResource, namespace: k.namespace})
	}
	return all, errors.Join(errs...)
}

package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/release"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
)

// releases compares the stage's Helm releases with the cluster: Terraform looks at the record of a release,
// not at its objects. It leaves out the releases that the plan changes anyway, which writes their objects,
// and those that do not exist, which the plan installs. The error joins those that cannot be compared.
func (p *planning) releases(ctx context.Context, one *Stage, planned []review.Change) (
	[]review.Change, error) {
	resources := slices.DeleteFunc(one.recorded.Managed(), func(r state.Resource) bool {
		changes := func(c review.Change) bool { return c.Address == r.Address }
		return r.Type != "helm_release" || r.Deposed || !slices.Contains(one.config.InCluster, r.Provider) ||
			slices.ContainsFunc(planned, changes)
	})
	found := run.Each(resources, func(r state.Resource) result {
		namespace, _ := r.Attributes["namespace"].(string)
		name, _ := r.Attributes["name"].(string)
		differing, err := release.Differences(ctx, p.run.Outputs.Target(), namespace, name)
		if gate.KindOf(err) == gate.NotFound {
			err = nil
		} else if err != nil {
			err = fmt.Errorf("%s: %w", r.Address, err)
		}
		return result{differing, err}
	})
	var all []review.Change
	var errs []error
	for _, one := range found {
		errs = append(errs, one.err)
		for _, d := range one.differing {
			all = append(all, review.Restored(d))
		}
	}
	return all, errors.Join(errs...)
}

type result struct {
	differing []release.Difference
	err       error
}

package status

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/kube"
)

// FluxStep is a Kustomization or HelmRelease of Flux with the time that it took.
type FluxStep = kube.FluxStep

// Convergence reads Flux's objects of a cluster in the order in which they became ready.
func Convergence(ctx context.Context, c *cluster.Cluster) ([]*FluxStep, error) {
	if _, _, err := Configs(ctx, c); err != nil {
		return nil, err
	}
	target, err := c.RecordedTarget()
	if err != nil {
		return nil, err
	}
	return kube.Convergence(ctx, target)
}

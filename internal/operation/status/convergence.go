package status

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// Convergence reads Flux's objects of a cluster in the order in which they became ready.
func Convergence(ctx context.Context, c *cluster.Cluster) (steps []event.FluxStep, err error) {
	if _, _, err := Configs(ctx, c); err != nil {
		return nil, err
	}
	target, err := c.RecordedTarget()
	if err != nil {
		return nil, err
	}
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		steps, err = gates.Convergence(ctx, a)
		return err
	})
	return steps, err
}

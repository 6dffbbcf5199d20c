package drain

import (
	"context"
	"fmt"
	"slices"

	"github.com/siderolabs/gen/xslices"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Obstacles explains, in a sentence each, why a drain of a node would never end, and what to do. It changes
// nothing. Pods that no controller starts again are obstacles without force, and volumes are none if their
// replicas move to other nodes first.
func Obstacles(ctx context.Context, target gate.Target, node string, force, moves bool) (all []string,
	err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		all = nil
		pods, err := podsOn(ctx, a, node)
		if err != nil {
			return err
		}
		budgets, err := listBudgets(ctx, a)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if text := blocks(p, budgetsOf(p, budgets)); text != "" {
				all = append(all, text)
			}
		}
		for _, lost := range unmanaged(pods) {
			if !force {
				all = append(all, lost+" has no controller that would start it elsewhere: delete it, or "+
					"pass --force")
			}
		}
		return nil
	})
	if err != nil || moves {
		return xslices.Map(all, foreign.Text), err
	}
	volumes, err := kube.BlockingVolumes(ctx, target, node)
	return xslices.Map(slices.Concat(all, volumes), foreign.Text), err
}

// blocks explains how its budgets keep a Pod from being evicted for ever; empty if they do not.
func blocks(p corev1.Pod, own []budget) string {
	// The eviction of a Pod that does not run needs no budget.
	if len(own) == 0 || protected(p) || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
		return ""
	}
	if len(own) > 1 {
		return fmt.Sprintf("%s has the PodDisruptionBudgets %s, and Kubernetes evicts no Pod that has more "+
			"than one: change their selectors, or delete all but one", title(p), names(own))
	}
	b, s := own[0], own[0].Status
	unready := !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	mayGo := b.Spec.UnhealthyPodEvictionPolicy != nil &&
		*b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow && unready
	if mayGo || s.ObservedGeneration != b.Generation || s.DesiredHealthy < max(1, s.ExpectedPods) {
		return ""
	}
	return fmt.Sprintf("%s is never evicted, because its PodDisruptionBudget %s requires %d of %d Pods: run "+
		"more replicas, let the budget have maxUnavailable 1, or delete it for the rollout", title(p), b.Name,
		s.DesiredHealthy, s.ExpectedPods)
}

package kube

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Life identifies one life of a cluster: the uid of its namespace kube-system. A cluster that is created anew
// has another one, also with the same keys at the same address.
func Life(ctx context.Context, target gate.Target) (uid string, err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		in := client.Selection{Resource: client.Core("namespaces"), Name: "kube-system"}
		o, err := a.Get(ctx, in, "Namespace")
		if err == nil {
			uid = string(o.GetUID())
		}
		return err
	})
	return uid, err
}

// ReclaimPolicies returns the reclaim policies of the PersistentVolumes of CSI drivers, by the driver and its
// handle: csi.hetzner.cloud/42.
func ReclaimPolicies(ctx context.Context, target gate.Target) (map[string]string, error) {
	policies := map[string]string{}
	err := client.Do(ctx, target, func(ctx context.Context, a *client.API) error {
		in := client.Selection{Resource: client.Core("persistentvolumes")}
		all, err := client.ListAs[corev1.PersistentVolume](ctx, a, in, "PersistentVolume")
		for _, v := range all {
			if of := v.Spec.CSI; of != nil {
				policies[of.Driver+"/"+of.VolumeHandle] = string(v.Spec.PersistentVolumeReclaimPolicy)
			}
		}
		return err
	})
	return policies, err
}

// StaleLeases lists the leases that were last renewed before a time.
func StaleLeases(ctx context.Context, target gate.Target, since time.Time) (stale []string, err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		in := client.Selection{Resource: coordinationv1.SchemeGroupVersion.WithResource("leases")}
		all, err := client.ListAs[coordinationv1.Lease](ctx, a, in, "Lease")
		stale = nil
		for _, l := range all {
			if last := l.Spec.RenewTime; last != nil && last.Time.Before(since) {
				stale = append(stale, foreign.Text(l.Namespace+"/"+l.Name))
			}
		}
		return err
	})
	return stale, err
}

// suspendedBy is the annotation of what castle has suspended in Flux.
const suspendedBy = "castle.ephemeral/suspended"

// SuspendFlux suspends every Kustomization and HelmRelease of Flux that runs, so that Flux neither undoes nor
// repeats what castle does. A cluster without Flux has none.
func SuspendFlux(ctx context.Context, target gate.Target) error {
	return eachOfFlux(ctx, target, func(ctx context.Context, a *client.API, o *client.Object,
		in client.Resource) error {
		if client.True(o, "spec", "suspend") {
			return nil
		}
		return a.Change(ctx, in.GroupVersionResource, o, map[string]any{suspendedBy: "true"},
			map[string]any{"suspend": true})
	})
}

// ResumeFlux undoes SuspendFlux. What somebody else has suspended stays so.
func ResumeFlux(ctx context.Context, target gate.Target) error {
	return eachOfFlux(ctx, target, func(ctx context.Context, a *client.API, o *client.Object,
		in client.Resource) error {
		if o.GetAnnotations()[suspendedBy] == "" {
			return nil
		}
		return a.Change(ctx, in.GroupVersionResource, o, map[string]any{suspendedBy: nil},
			map[string]any{"suspend": false})
	})
}

func eachOfFlux(ctx context.Context, target gate.Target,
	do func(context.Context, *client.API, *client.Object, client.Resource) error) error {
	return client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		var errs []error
		for group, kind := range map[string]string{"kustomize.toolkit.fluxcd.io": "Kustomization",
			"helm.toolkit.fluxcd.io": "HelmRelease"} {
			in, err := a.ResolveIn(ctx, group, kind)
			if client.IsNotServed(err) {
				continue
			}
			if err != nil {
				return err
			}
			all, err := a.List(ctx, client.Selection{Resource: in.GroupVersionResource}, kind)
			if err != nil {
				return err
			}
			for _, o := range all {
				errs = append(errs, do(ctx, a, &o, in))
			}
		}
		return errors.Join(errs...)
	})
}

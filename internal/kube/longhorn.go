package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// The fields of Longhorn's objects that castle reads (longhorn-manager, k8s/pkg/apis/longhorn/v1beta2).
type (
	volume struct {
		Metadata metav1.ObjectMeta
		Spec     struct {
			NumberOfReplicas        int
			ReplicaSoftAntiAffinity string
		}
		Status struct {
			State, Robustness string
			KubernetesStatus  struct{ Namespace, PVCName string }
		}
	}
	replica struct {
		Metadata metav1.ObjectMeta

		Spec   struct{ VolumeName, NodeID, HealthyAt, FailedAt, DesireState string }
		Status struct{ CurrentState string }
	}
)

// intact reports whether a replica was healthy and has not failed since (Longhorn's types.IsReplicaHealthy).
func (r replica) intact() bool { return r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" }

// isUsed reports whether a replica has ever had data.
func (r replica) isUsed() bool { return r.Spec.HealthyAt != "" || r.Spec.FailedAt != "" }

// title names a volume with its PersistentVolumeClaim, by which people know it.
func (v volume) title() string {
	if of := v.Status.KubernetesStatus; of.PVCName != "" {
		return fmt.Sprintf("%s (%s/%s)", v.Metadata.Name, of.Namespace, of.PVCName)
	}
	return v.Metadata.Name
}

// listLonghorn lists Longhorn's objects of a kind. A cluster without Longhorn has none.
func listLonghorn[T any](ctx context.Context, a *client.API, kind string) (all []T, err error) {
	objects, err := a.ListIn(ctx, "longhorn.io", kind, "")
	if client.IsNotServed(err) {
		return nil, nil
	}
	for _, object := range objects {
		var one T
		text, err := object.MarshalJSON()
		if err == nil {
			err = json.Unmarshal(text, &one)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", client.Title(&object), err)
		}
		all = append(all, one)
	}
	return all, err
}

func listVolumes(ctx context.Context, target gate.Target) (volumes []volume, replicas []replica, err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		if volumes, err = listLonghorn[volume](ctx, a, "Volume"); err == nil {
			replicas, err = listLonghorn[replica](ctx, a, "Replica")
		}
		return err
	})
	return volumes, replicas, err
}

// LastReplicas lists Longhorn's volumes, with their claims, whose only intact replicas are on a node, by the
// node's name. A cluster without Longhorn has none.
func LastReplicas(ctx context.Context, target gate.Target) (map[string][]string, error) {
	all, replicas, err := listVolumes(ctx, target)
	titles, nodes := map[string]string{}, map[string][]string{} // of each volume
	for _, v := range all {
		titles[v.Metadata.Name] = foreign.Text(v.title())
	}
	for _, r := range replicas {
		if of := r.Spec.VolumeName; r.intact() && !slices.Contains(nodes[of], r.Spec.NodeID) {
			nodes[of] = append(nodes[of], r.Spec.NodeID)
		}
	}
	volumes := map[string][]string{}
	for volume, on := range nodes {
		if len(on) == 1 {
			volumes[on[0]] = append(volumes[on[0]], cmp.Or(titles[volume], volume))
			slices.Sort(volumes[on[0]])
		}
	}
	return volumes, err
}

// ReplicasOn lists the volumes that have a replica on a node, intact or not.
func ReplicasOn(ctx context.Context, target gate.Target, node string) (volumes []string, err error) {
	_, replicas, err := listVolumes(ctx, target)
	for _, r := range replicas {
		if r.Spec.NodeID == node {
			volumes = append(volumes, r.Spec.VolumeName)
		}
	}
	slices.Sort(volumes)
	return slices.Compact(volumes), err
}

// UnhealthyVolumes lists Longhorn's volumes that are faulted or have fewer intact replicas than they should,
// in a sentence each. A volume that was never attached has no data yet.
func UnhealthyVolumes(ctx context.Context, target gate.Target) (unhealthy []string, err error) {
	volumes, replicas, err := listVolumes(ctx, target)
	for _, v := range volumes {
		intact, isUsed := 0, v.Status.State == "attached"
		for _, r := range replicas {
			if r.Spec.VolumeName == v.Metadata.Name {
				isUsed = isUsed || r.isUsed()
				if r.intact() {
					intact++
				}
			}
		}
		if text := v.problem(intact); text != "" && isUsed && err == nil {
			unhealthy = append(unhealthy, foreign.Text("volume "+v.title()+text))
		}
	}
	slices.Sort(unhealthy)
	return unhealthy, err
}

// problem explains what is wrong with a volume that has so many intact replicas; empty if nothing is.
func (v volume) problem(intact int) string {
	wanted := v.Spec.NumberOfReplicas
	switch lacks := intact < wanted; {
	case v.Status.Robustness == "faulted":
		return " is faulted: it has no usable replica; salvage one in Longhorn, or restore a backup"
	case v.Status.State == "detached" && lacks:
		return fmt.Sprintf(" is detached with %d of %d intact replicas: Longhorn rebuilds the others once a "+
			"Pod uses it", intact, wanted)
	case lacks:
		return fmt.Sprintf(" is degraded: %d of %d replicas are intact; Longhorn rebuilds the others on "+
			"nodes with room", intact, wanted)
	case v.Status.Robustness == "degraded":
		return " is degraded: Longhorn has not finished its rebuild"
	}
	return ""
}

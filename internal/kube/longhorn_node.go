package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Some values of Longhorn's setting node-drain-policy.
const (
	alwaysDrains   = "always-allow"
	drainsStopped  = "allow-if-replica-is-stopped"
	movesAll       = "block-for-eviction"
	movesLast      = "block-for-eviction-if-contains-last-replica"
	keepsLast      = "block-if-contains-last-replica" // the default
	attachedByHand = "longhorn-api"                   // a type of attachment, by Longhorn's page or API
)

type (
	setting struct {
		Metadata metav1.ObjectMeta
		Value    string
	}
	attachment struct {
		Spec struct {
			Volume            string
			AttachmentTickets map[string]struct{ Type, NodeID string }
		}
	}
	longhornNode struct {
		Metadata metav1.ObjectMeta
		Status   struct{ Conditions []client.Condition }
	}
)

// storage is what decides whether Longhorn releases a node.
type storage struct {
	node, policy string
	volumes      []volume
	replicas     []replica
	attachments  []attachment
	others       []string // the nodes that take replicas: none that is cordoned
	shares       bool     // replicas of one volume may be on one node
}

// BlockingVolumes explains, in a sentence each, why Longhorn would never release a cordoned node. It protects
// the Pod that runs the node's replicas by a budget until no volume is attached to the node and its setting
// node-drain-policy permits (longhorn-manager, canDeleteInstanceManagerPDB). A volume that a Pod uses is
// detached when the Pod leaves.
func BlockingVolumes(ctx context.Context, target gate.Target, node string) (blocking []string, err error) {
	s, err := readStorage(ctx, target, node)
	for _, v := range s.volumes {
		if text := s.blocks(v); text != "" {
			blocking = append(blocking, foreign.Text("volume "+v.title()+text))
		}
	}
	slices.Sort(blocking)
	return blocking, err
}

// Stuck is a volume with a replica that Longhorn cannot move to another node.
type Stuck struct {
	Volume string
	Spared bool   // it has two intact replicas on other nodes: this one can end, and is made anew later
	Text   string // a sentence
}

// StuckVolumes lists the volumes whose replica cannot leave a node. Longhorn places no two replicas of a
// volume on one node unless its setting replica-soft-anti-affinity or the volume's own permits
// (longhorn-manager, ReplicaScheduler).
func StuckVolumes(ctx context.Context, target gate.Target, node string) (stuck []Stuck, err error) {
	s, err := readStorage(ctx, target, node)
	for _, v := range s.volumes {
		var isHere bool
		var others, intact int
		for _, r := range s.replicas {
			switch {
			case r.Spec.VolumeName != v.Metadata.Name:
			case r.Spec.NodeID == node:
				isHere = true
			case r.Spec.FailedAt == "": // perhaps the one that is being rebuilt for it
				others++
				if r.intact() {
					intact++
				}
			}
		}
		if isHere && others < v.Spec.NumberOfReplicas && len(s.free(v)) == 0 {
			stuck = append(stuck, Stuck{Volume: v.Metadata.Name, Spared: intact > 1,
				Text: foreign.Text(fmt.Sprintf("volume %s is to have %d replicas, and no other node takes "+
					"that of node %s: add a node, or lower the volume's numberOfReplicas in Longhorn",
					v.title(), v.Spec.NumberOfReplicas, node))})
		}
	}
	return stuck, err
}

// readStorage reads what Longhorn has; nothing without Longhorn.
func readStorage(ctx context.Context, target gate.Target, node string) (s storage, err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		s = storage{node: node, policy: keepsLast}
		var errs [5]error
		var settings []setting
		var nodes []longhornNode
		s.volumes, errs[0] = listLonghorn[volume](ctx, a, "Volume")
		settings, errs[1] = listLonghorn[setting](ctx, a, "Setting")
		nodes, errs[2] = listLonghorn[longhornNode](ctx, a, "Node")
		s.replicas, errs[3] = listLonghorn[replica](ctx, a, "Replica")
		s.attachments, errs[4] = listLonghorn[attachment](ctx, a, "VolumeAttachment")
		for _, one := range settings {
			switch one.Metadata.Name {
			case "node-drain-policy":
				s.policy = cmp.Or(one.Value, keepsLast)
			case "replica-soft-anti-affinity":
				s.shares = one.Value == "true"
			}
		}
		for _, one := range nodes {
			if one.Metadata.Name != node && slices.ContainsFunc(one.Status.Conditions,
				func(c client.Condition) bool { return c.Type == "Schedulable" && c.Status == "True" }) {
				s.others = append(s.others, one.Metadata.Name)
			}
		}
		return errors.Join(errs[:]...)
	})
	return s, err
}

// free are the other nodes that can take a replica of a volume.
func (s storage) free(v volume) []string {
	if of := v.Spec.ReplicaSoftAntiAffinity; of == "enabled" || s.shares && of != "disabled" {
		return s.others
	}
	return slices.DeleteFunc(slices.Clone(s.others), func(name string) bool {
		return slices.ContainsFunc(s.replicas, func(r replica) bool {
			return r.Spec.VolumeName == v.Metadata.Name && r.Spec.NodeID == name
		})
	})
}

// blocks explains why a volume keeps the node; empty if it does not.
func (s storage) blocks(v volume) string {
	for _, one := range s.attachments {
		for _, ticket := range one.Spec.AttachmentTickets {
			if one.Spec.Volume == v.Metadata.Name && ticket.NodeID == s.node &&
				ticket.Type == attachedByHand {
				return fmt.Sprintf(" was attached to node %s by hand, and Longhorn keeps a node with an "+
					"attached volume: detach it in Longhorn", s.node)
			}
		}
	}
	var isHere, runs, isSafe bool
	for _, r := range s.replicas {
		switch {
		case r.Spec.VolumeName != v.Metadata.Name:
			continue
		case r.Spec.NodeID != s.node:
			isSafe = isSafe || r.intact() && slices.Contains(s.others, r.Spec.NodeID)
		case r.isUsed() || s.policy == movesAll: // else Longhorn ignores it
			isHere = true
			runs = runs || r.Spec.DesireState != "stopped" || r.Status.CurrentState != "stopped"
		}
	}
	moves := s.policy == movesAll || s.policy == movesLast
	if !isHere || s.policy == alwaysDrains || isSafe && s.policy != movesAll || moves && len(s.free(v)) > 0 ||
		s.policy == drainsStopped && !runs {
		return ""
	}
	why, fix := "has its last intact replica there", "wait until another node has an intact one"
	if moves {
		why, fix = "has a replica that no other node can take", "add a node"
	}
	if s.policy == drainsStopped {
		fix += ", or scale its workload to zero"
	} else {
		fix += ", or set the policy to " + drainsStopped + " and scale its workload to zero"
	}
	return fmt.Sprintf(" %s, and Longhorn's node-drain-policy %s keeps node %s: %s", why, s.policy, s.node,
		fix)
}

// schedulable is the annotation of a Longhorn node whose replicas castle has evicted. Its value is what
// spec.allowScheduling was.
const schedulable = "castle.ephemeral/allow-scheduling"

// EvictReplicas asks Longhorn to move all replicas off a node, and to place no others there. A node that
// Longhorn does not know has none. An eviction that somebody else has requested stays his.
func EvictReplicas(ctx context.Context, target gate.Target, node string) error {
	return client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		in, have, err := longhornNodeOf(ctx, a, node)
		if have == nil || client.True(have, "spec", "evictionRequested") {
			return err
		}
		takes := strconv.FormatBool(client.True(have, "spec", "allowScheduling"))
		return a.Change(ctx, in, have, map[string]any{schedulable: takes},
			map[string]any{"evictionRequested": true, "allowScheduling": false})
	})
}

// KeepReplicas undoes EvictReplicas, and no eviction of somebody else.
func KeepReplicas(ctx context.Context, target gate.Target, node string) error {
	return client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		in, have, err := longhornNodeOf(ctx, a, node)
		if have == nil || have.GetAnnotations()[schedulable] == "" {
			return err
		}
		return a.Change(ctx, in, have, map[string]any{schedulable: nil}, map[string]any{
			"evictionRequested": false, "allowScheduling": have.GetAnnotations()[schedulable] == "true"})
	})
}

// longhornNodeOf returns Longhorn's node of a name; nil if there is none.
func longhornNodeOf(ctx context.Context, a *client.API, name string) (
	in schema.GroupVersionResource, node *client.Object, err error) {
	found, err := a.ResolveIn(ctx, "longhorn.io", "Node")
	if client.IsNotServed(err) {
		return in, nil, nil
	}
	if err != nil {
		return in, nil, err
	}
	all, err := a.List(ctx, client.Selection{Resource: found.GroupVersionResource}, "Node")
	for _, one := range all {
		if one.GetName() == name {
			node = &one
		}
	}
	return found.GroupVersionResource, node, err
}

// DeleteNode deletes the Node of a machine that has left, and Longhorn's node of that name with its replicas.
// A replica stays, and Longhorn's node with it, unless another machine has an intact one. Neither need exist.
func DeleteNode(ctx context.Context, target gate.Target, node string) error {
	return client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		if err := a.Delete(ctx, client.Selection{Resource: client.Core("nodes"), Name: node}); err != nil {
			return err
		}
		in, have, err := longhornNodeOf(ctx, a, node)
		if have == nil || have.GetDeletionTimestamp() != nil {
			return err
		}
		if _, stays, err := deleteReplicas(ctx, a, node); len(stays) > 0 || err != nil {
			return err
		}
		if client.True(have, "spec", "allowScheduling") {
			if err := a.Change(ctx, in, have, nil, map[string]any{"allowScheduling": false}); err != nil {
				return err
			}
		}
		at := client.Selection{Resource: in, Namespace: have.GetNamespace(), Name: node}
		if err = a.Delete(ctx, at); apierrors.IsInvalid(err) {
			// Longhorn's webhook refuses it until Longhorn has noticed that the Node is gone.
			return &gate.Finding{Kind: gate.Waits, Object: client.Title(have), Err: err,
				Text: client.Brief(client.Message(err))}
		}
		return err
	})
}

// DropReplicas deletes Longhorn's replicas on a machine whose disks are others than those which the replicas
// were on. It returns the volumes of those, and of the ones that stay, because no other machine has one.
func DropReplicas(ctx context.Context, target gate.Target, node string) (dropped, stay []string, err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		dropped, stay, err = deleteReplicas(ctx, a, node)
		return err
	})
	return dropped, stay, err
}

// deleteReplicas deletes the replicas of a machine that has left, for which Longhorn would keep its node. One
// stays if no other machine has an intact replica of its volume. It returns the names of the volumes.
func deleteReplicas(ctx context.Context, a *client.API, node string) (deleted, stay []string, err error) {
	all, err := listLonghorn[replica](ctx, a, "Replica")
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	in, err := a.ResolveIn(ctx, "longhorn.io", "Replica")
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, r := range all {
		elsewhere := func(other replica) bool {
			return other.Spec.VolumeName == r.Spec.VolumeName && other.Spec.NodeID != node && other.intact()
		}
		switch {
		case r.Spec.NodeID != node:
		case slices.ContainsFunc(all, elsewhere):
			deleted = append(deleted, foreign.Text(r.Spec.VolumeName))
			errs = append(errs, a.Delete(ctx, client.Selection{Resource: in.GroupVersionResource,
				Namespace: r.Metadata.Namespace, Name: r.Metadata.Name}))
		default:
			stay = append(stay, foreign.Text(r.Spec.VolumeName))
		}
	}
	return deleted, stay, errors.Join(errs...)
}

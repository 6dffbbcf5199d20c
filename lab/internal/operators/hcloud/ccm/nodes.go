package ccm

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// Uninitialized and shutdown are the taints of k8s.io/cloud-provider.
const (
	Uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	shutdown      = "node.cloudprovider.kubernetes.io/shutdown"
)

func tainted(n corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

func untaint(n *corev1.Node, key string) {
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// isReady reports whether the node's kubelet reports that it is.
func isReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// node initializes a node whose kubelet waits for that, and follows the life of its server.
func (m *Manager) node(ctx context.Context, n corev1.Node, addresses bool) error {
	switch waits, ready := tainted(n, Uninitialized), isReady(n); {
	case waits:
		s, err := m.server(ctx, n)
		if err != nil || s == nil {
			return err // it waits for a server with its name
		}
		return m.initialize(ctx, n, s)
	case ready && tainted(n, shutdown):
		return m.change(ctx, n, func(n *corev1.Node) { untaint(n, shutdown) })
	case ready && addresses && n.Spec.ProviderID != "":
		s, err := m.server(ctx, n)
		if err != nil || s == nil {
			return err
		}
		return m.address(ctx, n, s)
	case ready:
		return nil
	}
	s, err := m.server(ctx, n)
	switch {
	case err != nil:
		return err
	case s == nil && n.DeletionTimestamp == nil:
		return cluster.Unless(m.w.Typed.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &n.UID}}), apierrors.IsNotFound)
	case s != nil && s.Status == api.ServerStatusOff && !tainted(n, shutdown):
		return m.change(ctx, n, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: shutdown,
				Effect: corev1.TaintEffectNoSchedule})
		})
	}
	return nil
}

// initialize checks the address first: a node whose kubelet has another one keeps its taint.
func (m *Manager) initialize(ctx context.Context, n corev1.Node, s *api.Server) error {
	if err := m.address(ctx, n, s); err != nil {
		return err
	}
	return m.change(ctx, n, func(n *corev1.Node) {
		untaint(n, Uninitialized)
		n.Spec.ProviderID = providerID(s)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		region, zone := s.Location.Name, zone(s.Location.Name)
		maps.Copy(n.Labels, map[string]string{
			corev1.LabelInstanceTypeStable: s.ServerType.Name, corev1.LabelInstanceType: s.ServerType.Name,
			corev1.LabelTopologyRegion: region, corev1.LabelFailureDomainBetaRegion: region,
			corev1.LabelTopologyZone: zone, corev1.LabelFailureDomainBetaZone: zone,
			"instance.hetzner.cloud/provided-by": "cloud",
		})
	})
}

// zone is the former datacenter of a location.
func zone(location string) string {
	numbers := map[string]string{"nbg1": "3", "hel1": "2", "fsn1": "14", "ash": "1", "hil": "1", "sin": "1"}
	if number := numbers[location]; number != "" {
		return location + "-dc" + number
	}
	return location
}

// address gives a node the addresses of its server, that of its kubelet first.
func (m *Manager) address(ctx context.Context, n corev1.Node, s *api.Server) error {
	var all []corev1.NodeAddress
	for _, p := range s.PrivateNet {
		if m.network != nil && p.Network.ID == m.network.ID {
			all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: p.IP.String()})
		}
	}
	all = append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: s.Name})
	if !s.PublicNet.IPv4.IsUnspecified() {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeExternalIP,
			Address: s.PublicNet.IPv4.IP.String()})
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && !slices.Contains(all, a) {
			return fmt.Errorf("provided node ip for node %q is not valid: failed to get node address "+
				"from cloud provider that matches ip: %s", n.Name, a.Address)
		}
	}
	if reflect.DeepEqual(all, n.Status.Addresses) {
		return nil
	}
	fresh, err := m.w.Typed.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return cluster.Unless(err, apierrors.IsNotFound)
	}
	fresh.Status.Addresses = all
	_, err = m.w.Typed.CoreV1().Nodes().UpdateStatus(ctx, fresh, metav1.UpdateOptions{})
	return cluster.Unless(cluster.Unless(err, apierrors.IsConflict), apierrors.IsNotFound)
}

// change writes a node, unless another one has its name now. A conflict is seen again by the next look.
func (m *Manager) change(ctx context.Context, n corev1.Node, change func(*corev1.Node)) error {
	fresh, err := m.w.Typed.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil || fresh.UID != n.UID {
		return cluster.Unless(err, apierrors.IsNotFound)
	}
	change(fresh)
	_, err = m.w.Typed.CoreV1().Nodes().Update(ctx, fresh, metav1.UpdateOptions{})
	return cluster.Unless(cluster.Unless(err, apierrors.IsConflict), apierrors.IsNotFound)
}

// Package health checks a cluster as Talos does (pkg/cluster/check/default.go): its machines, and its
// Kubernetes through the API.
package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
)

// Cluster is what a check looks at.
type Cluster struct {
	// Machines lists the machines that discovery finds now.
	Machines func() []Machine
	// Members lists the addresses of etcd's members, or returns why etcd does not.
	Members    func() ([]string, error)
	Kubeconfig []byte // of the cluster's endpoint
	CNI        string // "flannel", "none" or "custom"
}

// Machine is a machine at one moment.
type Machine struct {
	Address      string
	ControlPlane bool
	Up           bool // its API answers
	Stage        runtime.MachineStage
	Services     []*pb.ServiceInfo
}

// run is a check that is under way.
type run struct {
	cluster Cluster
	kube    kubernetes.Interface
}

// check is one of them.
type check struct {
	name string
	do   func(context.Context) error
}

var errSkipped = errors.New("SKIP")

// Check waits for one condition after the other, and sends each change of what it waits for.
func Check(ctx context.Context, c Cluster, send func(format string, args ...any) error) error {
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	h := &run{cluster: c, kube: client}
	if err := send("discovered nodes: %q", h.addresses(false)); err != nil {
		return err
	}
	for _, one := range h.checks() {
		if err := h.await(ctx, one, send); err != nil {
			return err
		}
	}
	return nil
}

func (h *run) await(ctx context.Context, one check, send func(string, ...any) error) error {
	last := "..."
	tick := time.NewTicker(200 * time.Millisecond) // Talos waits 5 s
	defer tick.Stop()
	for err := send("waiting for %s: ...", one.name); ; {
		if err != nil {
			return err
		}
		text := "OK"
		failed := one.do(ctx)
		if failed != nil {
			text = failed.Error()
		}
		if text != last {
			last = text
			err = send("waiting for %s: %s", one.name, text)
		}
		if err == nil && (failed == nil || errors.Is(failed, errSkipped)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *run) checks() []check {
	none := func(context.Context) error { return nil } // the fleet has one list of members, and enough of all
	return []check{
		{"etcd to be healthy", h.service("etcd")},
		{"etcd members to be consistent across nodes", none},
		{"etcd members to be control plane nodes", h.membersAreMachines},
		{"apid to be ready", h.apid},
		{"all nodes memory sizes", none},
		{"all nodes disk sizes", none},
		{"no diagnostics", none},
		{"kubelet to be healthy", h.service("kubelet")},
		{"all nodes to finish boot sequence", h.booted},
		{"all k8s nodes to report", h.nodes(func(corev1.Node) bool { return true }, "")},
		{"all control plane static pods to be running", none},
		{"all control plane components to be ready", h.components},
		{"all k8s nodes to report ready", h.nodes(isReady, "some nodes are not ready: %v")},
		{"kube-proxy to report ready", h.pods("k8s-app=kube-proxy", false)},
		{"coredns to report ready", h.pods("k8s-app=kube-dns", true)},
		{"all k8s nodes to report schedulable", h.nodes(
			func(n corev1.Node) bool { return !n.Spec.Unschedulable }, "some nodes are not schedulable: %v")},
	}
}

// addresses are those of the cluster's machines, or of its control planes.
func (h *run) addresses(controlPlanes bool) (all []string) {
	for _, m := range h.machines(controlPlanes) {
		all = append(all, m.Address)
	}
	return all
}

// machines are all, or the control planes.
func (h *run) machines(controlPlanes bool) []Machine {
	return slices.DeleteFunc(h.cluster.Machines(), func(m Machine) bool {
		return controlPlanes && !m.ControlPlane
	})
}

// each checks all machines, or all control planes.
func (h *run) each(controlPlanes bool, check func(Machine) error) error {
	var errs []error
	for _, m := range h.machines(controlPlanes) {
		errs = append(errs, check(m))
	}
	return errors.Join(errs...)
}

func (h *run) service(id string) func(context.Context) error {
	return func(context.Context) error {
		return h.each(true, func(m Machine) error {
			for _, s := range m.Services {
				switch {
				case s.GetId() != id:
				case !m.Up:
					return fmt.Errorf("%s: connection refused", m.Address)
				case s.GetState() != "Running":
					return fmt.Errorf("%s: service %q not in expected state %q: current state [%s] %s",
						m.Address, id, "Running", s.GetState(), s.GetEvents().GetEvents()[0].GetMsg())
				case !s.GetHealth().GetHealthy():
					return fmt.Errorf("%s: service is not healthy: %s", m.Address, id)
				}
			}
			return nil
		})
	}
}

func (h *run) membersAreMachines(context.Context) error {
	addresses := h.addresses(true)
	members, err := h.cluster.Members()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(members, func(a string) bool { return !slices.Contains(addresses, a) }) {
		return fmt.Errorf("etcd member ips %q are not subset of control plane node ips %q", members,
			addresses)
	}
	return nil
}

func (h *run) apid(context.Context) error {
	return h.each(false, func(m Machine) error {
		if !m.Up {
			return fmt.Errorf("%s: connection refused", m.Address)
		}
		return nil
	})
}

func (h *run) booted(context.Context) error {
	return h.each(false, func(m Machine) error {
		if m.Stage != runtime.MachineStageRunning {
			return fmt.Errorf("nodes are not running: %s: [%s]", m.Stage, m.Address)
		}
		return nil
	})
}

// nodes checks that each machine has a node, and that all nodes are in order.
func (h *run) nodes(good func(corev1.Node) bool, complaint string) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := h.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var found, bad []string
		for _, n := range list.Items {
			for _, a := range n.Status.Addresses {
				if a.Type == corev1.NodeInternalIP {
					found = append(found, a.Address)
				}
			}
			if !good(n) {
				bad = append(bad, n.Name)
			}
		}
		expected := h.addresses(false)
		slices.Sort(expected)
		slices.Sort(found)
		switch {
		case complaint == "" && !slices.Equal(expected, found):
			return fmt.Errorf("unexpected nodes with IPs %q, expected %q", found, expected)
		case len(bad) > 0:
			return fmt.Errorf(complaint, bad)
		}
		return nil
	}
}

func isReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// components checks that each control plane has its node and its static Pods.
func (h *run) components(ctx context.Context) error {
	list, err := h.kube.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{LabelSelector: constants.LabelNodeRoleControlPlane})
	if err != nil {
		return err
	}
	if machines := h.addresses(true); len(machines) != len(list.Items) {
		return fmt.Errorf("expected %d control plane nodes, got %d", len(machines), len(list.Items))
	}
	for _, name := range machineconfig.Components {
		ready, all, err := h.count(ctx, "k8s-app="+name)
		switch {
		case err != nil:
			return err
		case all != len(list.Items):
			return fmt.Errorf("expected number of pods for %s to be %d, got %d", name, len(list.Items), all)
		case ready != all:
			return fmt.Errorf("some pods are not ready for %s", name)
		}
	}
	return nil
}

// pods checks those of kube-system with a label; none at all is skipped.
func (h *run) pods(selector string, networked bool) func(context.Context) error {
	return func(ctx context.Context) error {
		ready, all, err := h.count(ctx, selector)
		switch {
		case err != nil:
			return err
		case all == 0 || networked && h.cluster.CNI == constants.NoneCNI:
			return errSkipped
		case ready != all:
			return fmt.Errorf("expected %d ready pods, got %d", all, ready)
		}
		return nil
	}
}

func (h *run) count(ctx context.Context, selector string) (ready, all int, err error) {
	list, err := h.kube.CoreV1().Pods(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, 0, err
	}
	for _, p := range list.Items {
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	return ready, len(list.Items), nil
}

package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterService checks a cluster as Talos does (pkg/cluster/check/default.go): its machines, which the fleet
// knows, and its Kubernetes, through the API.
type clusterService struct {
	clusterapi.UnimplementedClusterServiceServer
	world *world
	etcd  *etcd
}

// health is a check that is under way.
type health struct {
	world *world
	etcd  *etcd
	asked *machine
	kube  kubernetes.Interface
	cni   string
}

// healthCheck is one of them.
type healthCheck struct {
	name  string
	check func(context.Context) error
}

var errSkipped = errors.New("SKIP")

// HealthCheck waits for one condition after the other, and sends each change of what it waits for.
func (s *clusterService) HealthCheck(req *clusterapi.HealthCheckRequest,
	out clusterapi.ClusterService_HealthCheckServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).target
	c := m.installed
	unlock()
	if c == nil || !c.controlPlane {
		return onlyOnControlPlanes("cluster health check")
	}
	ctx, stop := context.WithTimeout(out.Context(), req.GetWaitTimeout().AsDuration())
	defer stop()
	client, err := kubernetesClient(c)
	if err != nil {
		return err
	}
	h := &health{world: s.world, etcd: s.etcd, asked: m, kube: client,
		cni: c.config.Cluster().Network().CNI().Name()}
	send := func(format string, args ...any) error {
		return out.SendMsg(&clusterapi.HealthCheckProgress{Message: fmt.Sprintf(format, args...)})
	}
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

func (h *health) await(ctx context.Context, one healthCheck, send func(string, ...any) error) error {
	last := "..."
	tick := time.NewTicker(200 * time.Millisecond) // Talos waits 5 s
	defer tick.Stop()
	for err := send("waiting for %s: ...", one.name); ; {
		if err != nil {
			return err
		}
		text := "OK"
		failed := one.check(ctx)
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

func (h *health) checks() []healthCheck {
	none := func(context.Context) error { return nil } // the fleet has one list of members, and enough of all
	return []healthCheck{
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
func (h *health) addresses(controlPlanes bool) (all []string) {
	for _, m := range h.machines(controlPlanes) {
		all = append(all, m.spec.Address)
	}
	return all
}

// machines are those that discovery finds.
func (h *health) machines(controlPlanes bool) (all []*machine) {
	defer h.world.lock()()
	for _, m := range h.world.machines {
		if m.installed != nil && h.asked.installed != nil && m.installed.ca == h.asked.installed.ca &&
			(m.controlPlane() || !controlPlanes) {
			all = append(all, m)
		}
	}
	return all
}

// each checks all machines, or all control planes, under the lock.
func (h *health) each(controlPlanes bool, check func(*machine) error) error {
	var errs []error
	machines := h.machines(controlPlanes)
	defer h.world.lock()()
	for _, m := range machines {
		errs = append(errs, check(m))
	}
	return errors.Join(errs...)
}

func (h *health) service(id string) func(context.Context) error {
	return func(context.Context) error {
		return h.each(true, func(m *machine) error {
			for _, s := range servicesOf(m) {
				switch {
				case s.GetId() != id:
				case m.server == nil:
					return fmt.Errorf("%s: connection refused", m.spec.Address)
				case s.GetState() != "Running":
					return fmt.Errorf("%s: service %q not in expected state %q: current state [%s] %s",
						m.spec.Address, id, "Running", s.GetState(), s.GetEvents().GetEvents()[0].GetMsg())
				case !s.GetHealth().GetHealthy():
					return fmt.Errorf("%s: service is not healthy: %s", m.spec.Address, id)
				}
			}
			return nil
		})
	}
}

func (h *health) membersAreMachines(context.Context) error {
	addresses := h.addresses(true)
	defer h.world.lock()()
	e := h.etcd.anyVoter(h.asked)
	if e == nil {
		return errors.New(etcdNoLeader)
	}
	var members []string
	for _, x := range e.cluster.members {
		members = append(members, x.machine.spec.Address)
	}
	if slices.ContainsFunc(members, func(a string) bool { return !slices.Contains(addresses, a) }) {
		return fmt.Errorf("etcd member ips %q are not subset of control plane node ips %q", members,
			addresses)
	}
	return nil
}

func (h *health) apid(context.Context) error {
	return h.each(false, func(m *machine) error {
		if m.server == nil {
			return fmt.Errorf("%s: connection refused", m.spec.Address)
		}
		return nil
	})
}

func (h *health) booted(context.Context) error {
	return h.each(false, func(m *machine) error {
		if m.doing != runtime.MachineStageRunning {
			return fmt.Errorf("nodes are not running: %s: [%s]", m.doing, m.spec.Address)
		}
		return nil
	})
}

// kubernetesClient is that of the cluster's endpoint, with the administrator's certificate.
func kubernetesClient(c *installed) (kubernetes.Interface, error) {
	text, err := adminKubeconfig(c.config.Cluster())
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// nodes checks that each machine has a node, and that all nodes are in order.
func (h *health) nodes(good func(corev1.Node) bool, complaint string) func(context.Context) error {
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
func (h *health) components(ctx context.Context) error {
	list, err := h.kube.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{LabelSelector: constants.LabelNodeRoleControlPlane})
	if err != nil {
		return err
	}
	if machines := h.addresses(true); len(machines) != len(list.Items) {
		return fmt.Errorf("expected %d control plane nodes, got %d", len(machines), len(list.Items))
	}
	for _, name := range components {
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
func (h *health) pods(selector string, networked bool) func(context.Context) error {
	return func(ctx context.Context) error {
		ready, all, err := h.count(ctx, selector)
		switch {
		case err != nil:
			return err
		case all == 0 || networked && h.cni == constants.NoneCNI:
			return errSkipped
		case ready != all:
			return fmt.Errorf("expected %d ready pods, got %d", all, ready)
		}
		return nil
	}
}

func (h *health) count(ctx context.Context, selector string) (ready, all int, err error) {
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

package ccm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// ServiceUID is the label of a load balancer: the uid of its Service.
const ServiceUID = "hcloud-ccm/service-uid"

// finalizer keeps a Service until its load balancer is deleted.
const finalizer = "service.kubernetes.io/load-balancer-cleanup"

// annotation is one of a Service, without its prefix.
func annotation(s corev1.Service, name string) string {
	return s.Annotations["load-balancer.hetzner.cloud/"+name]
}

// setting is what an annotation of a Service says, or the variable of the controller.
func (m *Manager) setting(s corev1.Service, name, variable string) string {
	if value, is := s.Annotations["load-balancer.hetzner.cloud/"+name]; is {
		return value
	}
	return m.env["HCLOUD_LOAD_BALANCERS_"+variable]
}

// balance makes the load balancers of Services, and deletes those of Services that need none any more.
func (m *Manager) balance(ctx context.Context, nodes []corev1.Node) error {
	list, err := m.w.Typed.CoreV1().Services("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	targets := targetsOf(nodes)
	var errs []error
	for _, s := range list.Items {
		wants := s.DeletionTimestamp == nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
			s.Spec.LoadBalancerClass == nil
		step, of := "ccm "+string(s.UID), fmt.Sprint(s.Spec.Ports, s.Annotations, targets)
		switch {
		case !wants && !slices.Contains(s.Finalizers, finalizer):
			continue
		case wants && m.ensured[string(s.UID)] == of && len(s.Status.LoadBalancer.Ingress) > 0:
			continue
		case m.ensured[step] == of && !m.w.Passed(step, 5*time.Second): // it has just failed
			continue
		case wants:
			err = m.ensure(ctx, s, targets)
		default:
			err = m.end(ctx, s)
		}
		if delete(m.ensured, step); err == nil {
			m.ensured[string(s.UID)] = of
			continue
		}
		m.ensured[step] = of
		m.w.Restart(step)
		m.w.Passed(step, 0)
		errs = append(errs, cluster.About("service "+s.Namespace+"/"+s.Name, err), m.warn(ctx, s, err))
	}
	return errors.Join(errs...)
}

// targetsOf are the servers of the nodes that take traffic.
func targetsOf(nodes []corev1.Node) (ids []int64) {
	for _, n := range nodes {
		var id int64
		_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
		_, err := fmt.Sscanf(n.Spec.ProviderID, "hcloud://%d", &id)
		if err == nil && !excluded && isReady(n) && !tainted(n, "ToBeDeletedByClusterAutoscaler") {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// warn records the event by which the controller reports a failure.
func (m *Manager) warn(ctx context.Context, s corev1.Service, failure error) error {
	return m.w.Warn(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace,
		Name: s.Name, UID: s.UID}, "service-controller", "SyncLoadBalancerFailed",
		"Error syncing load balancer: failed to ensure load balancer: "+failure.Error())
}

// find returns the load balancer of a Service by its label; nil without one.
func (m *Manager) find(ctx context.Context, s corev1.Service) (*api.LoadBalancer, error) {
	all, err := m.client.LoadBalancer.AllWithOpts(ctx, api.LoadBalancerListOpts{
		ListOpts: api.ListOpts{LabelSelector: ServiceUID + "=" + string(s.UID)}})
	switch {
	case err != nil:
		return nil, err
	case len(all) > 1:
		return nil, errors.New("hcops/LoadBalancerOps.GetByK8SServiceUID: non unique result")
	case len(all) == 1:
		return all[0], nil
	}
	return nil, nil
}

// nameOf is the load balancer's name, as k8s.io/cloud-provider makes it of a uid.
func nameOf(s corev1.Service) string {
	if name := annotation(s, "name"); name != "" {
		return name
	}
	name := "a" + strings.ReplaceAll(string(s.UID), "-", "")
	return name[:min(32, len(name))]
}

func (m *Manager) ensure(ctx context.Context, s corev1.Service, targets []int64) error {
	if !slices.Contains(s.Finalizers, finalizer) {
		s.Finalizers = append(slices.Clone(s.Finalizers), finalizer)
		fresh, err := m.w.Typed.CoreV1().Services(s.Namespace).Update(ctx, &s, metav1.UpdateOptions{})
		if err != nil {
			return unchanged(err)
		}
		s = *fresh
	}
	b, err := m.find(ctx, s)
	if err == nil && b == nil { // the controller takes over what has the name
		b, _, err = m.client.LoadBalancer.GetByName(ctx, nameOf(s))
	}
	if err == nil && b == nil {
		b, err = m.create(ctx, s)
	}
	if err != nil {
		return err
	}
	if b.Labels[ServiceUID] != string(s.UID) || b.Name != nameOf(s) {
		labels := map[string]string{ServiceUID: string(s.UID)}
		for key, value := range b.Labels {
			if key != ServiceUID {
				labels[key] = value
			}
		}
		if _, _, err := m.client.LoadBalancer.Update(ctx, b, api.LoadBalancerUpdateOpts{Name: nameOf(s),
			Labels: labels}); err != nil {
			return err
		}
	}
	if err := m.attach(ctx, b, s); err != nil {
		return err
	}
	if err := errors.Join(m.listen(ctx, b, s), m.target(ctx, b, s, targets)); err != nil {
		return err
	}
	if b, _, err = m.client.LoadBalancer.GetByID(ctx, b.ID); err != nil || b == nil {
		return errors.Join(err, errors.New("the load balancer is gone"))
	}
	s.Status.LoadBalancer.Ingress = m.ingress(b, s)
	_, err = m.w.Typed.CoreV1().Services(s.Namespace).UpdateStatus(ctx, &s, metav1.UpdateOptions{})
	return unchanged(err)
}

// unchanged takes the error of a write for none if the Service is gone, or has changed: the next look sees
// it.
func unchanged(err error) error {
	return cluster.Unless(cluster.Unless(err, apierrors.IsNotFound), apierrors.IsConflict)
}

func (m *Manager) create(ctx context.Context, s corev1.Service) (*api.LoadBalancer, error) {
	o := api.LoadBalancerCreateOpts{Name: nameOf(s), Labels: map[string]string{ServiceUID: string(s.UID)},
		LoadBalancerType: &api.LoadBalancerType{Name: "lb11"}}
	if typ := m.setting(s, "type", "TYPE"); typ != "" {
		o.LoadBalancerType.Name = typ
	}
	zone := m.setting(s, "network-zone", "NETWORK_ZONE")
	switch location := m.setting(s, "location", "LOCATION"); {
	case location != "":
		o.Location = &api.Location{Name: location}
	case zone != "":
		o.NetworkZone = api.NetworkZone(zone)
	default:
		return nil, errors.New("hcops/LoadBalancerOps.Create: neither load-balancer.hetzner.cloud/location " +
			"nor load-balancer.hetzner.cloud/network-zone set")
	}
	if m.setting(s, "disable-public-network", "DISABLE_PUBLIC_NETWORK") == "true" {
		o.PublicInterface = new(bool)
	}
	made, _, err := m.client.LoadBalancer.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	return made.LoadBalancer, m.client.Action.WaitFor(ctx, made.Action)
}

// attach puts the load balancer into the network, if the controller has one.
func (m *Manager) attach(ctx context.Context, b *api.LoadBalancer, s corev1.Service) error {
	if m.network == nil || slices.ContainsFunc(b.PrivateNet, func(p api.LoadBalancerPrivateNet) bool {
		return p.Network.ID == m.network.ID
	}) {
		return nil
	}
	a, _, err := m.client.LoadBalancer.AttachToNetwork(ctx, b, api.LoadBalancerAttachToNetworkOpts{
		Network: m.network, IP: net.ParseIP(annotation(s, "private-ipv4"))})
	if err != nil {
		return err
	}
	return m.client.Action.WaitFor(ctx, a)
}

// listen gives the load balancer the ports of the Service, each with its port on the nodes.
func (m *Manager) listen(ctx context.Context, b *api.LoadBalancer, s corev1.Service) error {
	wanted := map[int]int{}
	for _, p := range s.Spec.Ports {
		if p.Protocol == corev1.ProtocolTCP || p.Protocol == "" {
			wanted[int(p.Port)] = int(p.NodePort)
		}
	}
	var actions []*api.Action
	var errs []error
	do := func(a *api.Action, _ *api.Response, err error) {
		if errs = append(errs, err); err == nil {
			actions = append(actions, a)
		}
	}
	for _, has := range b.Services {
		port, is := wanted[has.ListenPort]
		switch {
		case !is:
			do(m.client.LoadBalancer.DeleteService(ctx, b, has.ListenPort))
		case port != has.DestinationPort:
			do(m.client.LoadBalancer.UpdateService(ctx, b, has.ListenPort,
				api.LoadBalancerUpdateServiceOpts{Protocol: api.LoadBalancerServiceProtocolTCP,
					DestinationPort: &port}))
		}
		delete(wanted, has.ListenPort)
	}
	for listen, port := range wanted {
		do(m.client.LoadBalancer.AddService(ctx, b, api.LoadBalancerAddServiceOpts{
			Protocol: api.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &port}))
	}
	return errors.Join(append(errs, m.client.Action.WaitFor(ctx, actions...))...)
}

// target gives the load balancer the servers of the nodes, and no others.
func (m *Manager) target(ctx context.Context, b *api.LoadBalancer, s corev1.Service, ids []int64) error {
	private := m.setting(s, "use-private-ip", "USE_PRIVATE_IP") == "true"
	ids = slices.Clone(ids)
	for _, has := range b.Targets {
		if has.Type != api.LoadBalancerTargetTypeServer {
			continue
		}
		id := has.Server.Server.ID
		if slices.Contains(ids, id) && has.UsePrivateIP == private {
			ids = slices.DeleteFunc(ids, func(other int64) bool { return other == id })
			continue
		}
		a, _, err := m.client.LoadBalancer.RemoveServerTarget(ctx, b, has.Server.Server)
		if err == nil {
			err = m.client.Action.WaitFor(ctx, a)
		}
		if err != nil {
			return err
		}
	}
	for _, id := range ids {
		a, _, err := m.client.LoadBalancer.AddServerTarget(ctx, b, api.LoadBalancerAddServerTargetOpts{
			Server: &api.Server{ID: id}, UsePrivateIP: &private})
		if err == nil {
			err = m.client.Action.WaitFor(ctx, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ingress is what the status of the Service tells: the public addresses, and the private one.
func (m *Manager) ingress(b *api.LoadBalancer, s corev1.Service) (all []corev1.LoadBalancerIngress) {
	if host := annotation(s, "hostname"); host != "" {
		return []corev1.LoadBalancerIngress{{Hostname: host}}
	}
	mode := corev1.LoadBalancerIPModeVIP
	add := func(ip net.IP) { all = append(all, corev1.LoadBalancerIngress{IP: ip.String(), IPMode: &mode}) }
	if b.PublicNet.Enabled {
		add(b.PublicNet.IPv4.IP)
		if m.setting(s, "ipv6-disabled", "DISABLE_IPV6") != "true" {
			add(b.PublicNet.IPv6.IP)
		}
	}
	if m.setting(s, "disable-private-ingress", "DISABLE_PRIVATE_INGRESS") != "true" {
		for _, p := range b.PrivateNet {
			add(p.IP)
		}
	}
	return all
}

// end deletes the load balancer, unless that is protected: then it stays without a word.
func (m *Manager) end(ctx context.Context, s corev1.Service) error {
	b, err := m.find(ctx, s)
	if err == nil && b != nil && !b.Protection.Delete {
		_, err = m.client.LoadBalancer.Delete(ctx, b)
		if api.IsError(err, api.ErrorCodeNotFound) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	s.Finalizers = slices.DeleteFunc(slices.Clone(s.Finalizers),
		func(name string) bool { return name == finalizer })
	fresh, err := m.w.Typed.CoreV1().Services(s.Namespace).Update(ctx, &s, metav1.UpdateOptions{})
	if err != nil || fresh.DeletionTimestamp != nil {
		return unchanged(err)
	}
	fresh.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	_, err = m.w.Typed.CoreV1().Services(s.Namespace).UpdateStatus(ctx, fresh, metav1.UpdateOptions{})
	return unchanged(err)
}

package gates

import (
	"cmp"
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

const (
	// leaseOf begins the name of the lease of an announced Service; its namespace and name follow.
	leaseOf = "cilium-l2announce-"
	// announcer is the class of load balancers that Cilium announces, beside Services without a class.
	announcer = "io.cilium/l2-announcer"
	// satisfied is the condition of a Service whose address comes from Cilium.
	satisfied = "cilium.io/IPAMRequestSatisfied"
)

// announcement checks that a node answers ARP for each address that Cilium has given to a Service: the
// agent that holds the Service's lease does. An address without one reaches nobody.
func announcement() definition {
	return definition{gate.Type{
		Name:    "announcement",
		Summary: "a ready node announces each Service that has an address of Cilium",
		Attributes: map[string]gate.Attribute{
			"namespace": required(named("Cilium's namespace, which holds the leases")),
		},
	}, func(v gate.Values) (Check, error) {
		in := client.Selection{Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"),
			Namespace: v.String("namespace")}
		return func(ctx context.Context, a *client.API) error {
			services, err := client.ListAs[corev1.Service](ctx, a,
				client.Selection{Resource: client.Core("services")}, "Service")
			if err != nil {
				return err
			}
			leases, err := client.ListAs[coordinationv1.Lease](ctx, a, in, "Lease")
			if err != nil {
				return err
			}
			nodes, err := ListNodes(ctx, a, "")
			if err != nil {
				return err
			}
			var closed []*gate.Finding
			for _, s := range services {
				if ofCilium(s) {
					closed = append(closed, checkHolder(s, leases, nodes))
				}
			}
			return together(closed)
		}, nil
	}}
}

// ofCilium reports whether Cilium has given the Service an address that its agents may announce.
func ofCilium(s corev1.Service) bool {
	class := s.Spec.LoadBalancerClass
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && (class == nil || *class == announcer) &&
		len(s.Status.LoadBalancer.Ingress) > 0 && s.DeletionTimestamp == nil &&
		meta.IsStatusConditionTrue(s.Status.Conditions, satisfied)
}

// checkHolder is the finding that no ready node holds the lease of a Service; nil if one does.
func checkHolder(s corev1.Service, leases []coordinationv1.Lease, nodes []corev1.Node) *gate.Finding {
	what, address := client.Titled("service", s.Namespace, s.Name), s.Status.LoadBalancer.Ingress[0].IP
	holder := ""
	for _, l := range leases {
		if id := l.Spec.HolderIdentity; l.Name == leaseOf+s.Namespace+"-"+s.Name && id != nil {
			holder = *id
		}
	}
	at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == holder })
	switch {
	case holder == "":
		return problem(Unannounced, what, "no node announces %s", cmp.Or(address, "its address"))
	case at < 0:
		return problem(Unannounced, what, "node %s announces %s, and is no node of the cluster", holder,
			address)
	case NodeUnready(nodes[at]) != nil:
		return problem(Unannounced, what, "node %s announces %s, and is not ready", holder, address)
	}
	return nil
}

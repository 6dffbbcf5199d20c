package gates

import (
	"context"
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// established is the state of a BGP session in which both sides exchange routes (RFC 4271, section 8.2.2).
const established = "established"

// bgpSessions checks that each node of Cilium's has a session with each router. Without one, the router sends
// nothing to the node, and without any, nobody outside reaches the addresses of Services.
func bgpSessions() definition {
	return definition{gate.Type{
		Name:    "bgp_sessions",
		Summary: "each node has an established BGP session with each router",
		Attributes: map[string]gate.Attribute{
			"peers": {Type: cty.List(cty.String), Required: true,
				Help: "the names of the routers in the CiliumBGPClusterConfig"},
		},
	}, func(v gate.Values) (Check, error) {
		var peers []string
		if err := v.Decode("peers", &peers); err != nil {
			return nil, fmt.Errorf("peers: %w", err)
		}
		return func(ctx context.Context, a *client.API) error {
			nodes, err := ListNodes(ctx, a, "")
			if err != nil {
				return err
			}
			configs, err := a.List(ctx, client.Selection{Resource: schema.GroupVersionResource{
				Group: "cilium.io", Version: "v2", Resource: "ciliumbgpnodeconfigs"}}, "CiliumBGPNodeConfig")
			if err != nil {
				return err
			}
			var closed []*gate.Finding
			for _, n := range nodes {
				at := slices.IndexFunc(configs, func(o client.Object) bool { return o.GetName() == n.Name })
				if at < 0 {
					closed = append(closed, problem(NoSession, client.Titled("node", "", n.Name),
						"speaks no BGP: Cilium has made no CiliumBGPNodeConfig for it"))
					continue
				}
				closed = append(closed, checkSessions(configs[at], peers)...)
			}
			return together(closed)
		}, nil
	}}
}

// checkSessions are the findings that a node lacks sessions with routers.
func checkSessions(config client.Object, peers []string) (closed []*gate.Finding) {
	states := map[string]string{}
	//nolint:errcheck // what has another type is no session
	instances, _, _ := unstructured.NestedSlice(config.Object, "status", "bgpInstances")
	for _, one := range instances {
		instance, _ := one.(map[string]any)
		all, _ := instance["peers"].([]any)
		for _, one := range all {
			peer, _ := one.(map[string]any)
			name, _ := peer["name"].(string)
			states[name], _ = peer["peeringState"].(string)
		}
	}
	for _, name := range peers {
		what := client.Titled("node", "", config.GetName())
		switch state := states[name]; state {
		case established:
		case "":
			closed = append(closed, problem(NoSession, what, "has no BGP session with router %s yet", name))
		default:
			closed = append(closed,
				problem(NoSession, what, "its BGP session with router %s is %s", name, state))
		}
	}
	return closed
}

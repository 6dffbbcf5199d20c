package kube

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestBGPSessions(t *testing.T) {
	const node, config = "/api/v1/nodes/green-w-01", "/apis/cilium.io/v2/ciliumbgpnodeconfigs/green-w-01"
	peering := func(status string) fixture {
		return fixture{config, "{kind: CiliumBGPNodeConfig, metadata: {name: green-w-01}, status: {" +
			"bgpInstances: [{name: castle, peers: [" + status + "]}]}}"}
	}
	arguments := map[string]cty.Value{"peers": cty.ListVal([]cty.Value{str("left"), str("right")})}
	serves := []kind{{"cilium.io/v2", "CiliumBGPNodeConfig", "ciliumbgpnodeconfigs", false}}
	const left, right = "{name: left, peeringState: established}", "{name: right, peeringState: established}"
	runTrials(t, "bgp_sessions", []trial{
		{name: "with both routers", arguments: arguments, serves: serves,
			objects: []fixture{{node, readyNode}, peering(left + ", " + right)}},
		{name: "one router does not answer", arguments: arguments, serves: serves,
			objects: []fixture{{node, readyNode}, peering(left + ", {name: right, peeringState: active}")},
			want:    "node green-w-01: its BGP session with router right is active"},
		{name: "no session yet", arguments: arguments, serves: serves,
			objects: []fixture{{node, readyNode}, peering(left)},
			want:    "node green-w-01: has no BGP session with router right yet"},
		{name: "no status", arguments: arguments, serves: serves,
			objects: []fixture{{node, readyNode}, {config,
				"{kind: CiliumBGPNodeConfig, metadata: {name: green-w-01}}"}},
			want: "node green-w-01: has no BGP session with router left yet; " +
				"node green-w-01: has no BGP session with router right yet"},
		{name: "a node without BGP", arguments: arguments, serves: serves,
			objects: []fixture{{node, readyNode}},
			want:    "node green-w-01: speaks no BGP: Cilium has made no CiliumBGPNodeConfig for it"},
		{name: "no Cilium", arguments: arguments,
			objects: []fixture{{node, readyNode}},
			want:    "the API serves no kind CiliumBGPNodeConfig in cilium.io/v2 yet"},
	})
}

package talos

import (
	"net/netip"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// nodeAt is the view of 10.0.0.<id>, whose etcd is in that state and, if it runs,
// follows leader and lists ids.
func nodeAt(id, leader uint64, state string, ids ...uint64) nodeView {
	n := sees(id, leader, ids...)
	if state != "Running" {
		n = nodeView{etcdProblem: &problem{reason: "etcd does not run yet"}}
	}
	n.endpoint, n.links = "10.0.0."+string(rune('0'+id)), []string{"ens18"}
	n.services = []*machineapi.ServiceInfo{{
		Id: "etcd", State: state, Health: &machineapi.ServiceHealth{Healthy: state == "Running"},
		Events: &machineapi.ServiceEvents{Events: []*machineapi.ServiceEvent{{Msg: "image is not there",
			State: state}}},
	}}
	for _, m := range n.members {
		m.PeerUrls = []string{"https://10.0.0." + string(rune('0'+m.GetId())) + ":2380"}
	}
	return n
}

func at(n nodeView, address string) nodeView {
	n.addresses = append(n.addresses, network.AddressStatusSpec{Address: netip.MustParsePrefix(address),
		LinkName: "ens18"})
	return n
}

func TestEtcdCauseNamesTheFirstCauseThatFits(t *testing.T) {
	unstarted := nodeAt(1, 1, "Running", 1, 2)
	unstarted.members[1].IsLearner, unstarted.members[1].Hostname = true, ""
	forbidden := nodeView{endpoint: "10.0.0.1", problem: &problem{endpoint: "10.0.0.1",
		reason: "the role may not", permanent: true}}
	for name, c := range map[string]struct {
		nodes       []nodeView
		cause, look string
	}{
		"two clusters": {
			[]nodeView{nodeAt(1, 1, "Running", 1), nodeAt(2, 2, "Running", 2)},
			"two etcd clusters have formed", "talosctl -n 10.0.0.1,10.0.0.2 etcd members",
		},
		"no quorum": {
			[]nodeView{nodeAt(1, 0, "Running"), nodeAt(2, 0, "Running")},
			"etcd has no quorum", "talosctl -n 10.0.0.1 logs etcd",
		},
		"a learner that was added and did not start": {
			[]nodeView{unstarted, nodeAt(2, 0, "Preparing")},
			"has not started its member: its disk holds an earlier cluster",
			"talosctl -n 10.0.0.2 service etcd",
		},
		"a member that is no machine": {
			[]nodeView{nodeAt(1, 1, "Running", 1, 2, 7), nodeAt(2, 1, "Running", 1, 2, 7)},
			"a member at 10.0.0.7, which is none of the control planes", "talosctl -n 10.0.0.1 etcd members",
		},
		"stuck in Preparing": {
			[]nodeView{nodeAt(1, 1, "Running", 1), nodeAt(2, 0, "Preparing")},
			"etcd on 10.0.0.2 is stuck in Preparing", "talosctl -n 10.0.0.2 service etcd",
		},
		"something else": {
			[]nodeView{nodeAt(1, 1, "Running", 1), nodeAt(2, 0, "Failed")},
			"etcd on 10.0.0.2 is Failed: image is not there", "talosctl -n 10.0.0.2 logs etcd",
		},
		"nothing known":   {[]nodeView{nodeAt(1, 1, "Running", 1)}, "", ""},
		"no role to read": {[]nodeView{forbidden}, "", ""},
		"a port is no address": {[]nodeView{{endpoint: "10.0.0.9:50000",
			problem: &problem{reason: "i/o timeout"}}}, "10.0.0.9 is off", "talosctl -n 10.0.0.9 version"},
	} {
		h := etcdCause(c.nodes)
		if !strings.Contains(h.Cause, c.cause) || (c.cause == "" && h.Cause != "") || h.Look != c.look {
			t.Errorf("%s: got %q and %q", name, h.Cause, h.Look)
		}
	}
	if h := addressCause(netip.MustParseAddr("10.0.0.10"))([]nodeView{forbidden}); h.Cause != "" {
		t.Errorf("no role to read: %+v", h)
	}
}

func TestAddressCauseNamesTwoHolders(t *testing.T) {
	h := addressCause(netip.MustParseAddr("10.0.0.10"))([]nodeView{
		at(nodeAt(1, 1, "Running", 1, 2), "10.0.0.10/32"), at(nodeAt(2, 1, "Running", 1, 2), "10.0.0.10/32"),
	})
	if !strings.HasPrefix(h.Cause, "10.0.0.1 and 10.0.0.2 do not elect together") ||
		h.Look != "talosctl -n 10.0.0.1,10.0.0.2 etcd members" {
		t.Errorf("got %+v", h)
	}
}

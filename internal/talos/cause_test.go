package talos

import (
	"net/netip"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// testifies makes the witness at 10.0.0.<id> whose etcd is in that state and,
// if it runs, follows leader and lists ids.
func testifies(id, leader uint64, state string, ids ...uint64) witness {
	w := witness{endpoint: "10.0.0." + string(rune('0'+id)), links: []string{"ens18"}}
	w.services = []*machineapi.ServiceInfo{{
		Id: "etcd", State: state, Health: &machineapi.ServiceHealth{Healthy: state == "Running"},
		Events: &machineapi.ServiceEvents{Events: []*machineapi.ServiceEvent{{Msg: "image is not there", State: state}}},
	}}
	w.etcd.endpoint = w.endpoint
	if state != "Running" {
		w.etcd.problem = &problem{endpoint: w.endpoint, what: "etcd does not run yet"}
		return w
	}
	w.etcd = sees(id, leader, ids...)
	for _, m := range w.etcd.members {
		m.PeerUrls = []string{"https://10.0.0." + string(rune('0'+m.GetId())) + ":2380"}
	}
	return w
}

func at(w witness, address string) witness {
	w.addresses = append(w.addresses, network.AddressStatusSpec{Address: netip.MustParsePrefix(address), LinkName: "ens18"})
	return w
}

func TestEtcdsLikelyCauses(t *testing.T) {
	unstarted := testifies(1, 1, "Running", 1, 2)
	unstarted.etcd.members[1].IsLearner, unstarted.etcd.members[1].Hostname = true, ""
	forbidden := witness{endpoint: "10.0.0.1", problem: &problem{endpoint: "10.0.0.1", what: "the role may not", permanent: true}}
	for name, c := range map[string]struct {
		heard       []witness
		cause, look string
	}{
		"two clusters": {
			[]witness{testifies(1, 1, "Running", 1), testifies(2, 2, "Running", 2)},
			"two etcd clusters have formed", "talosctl -n 10.0.0.1,10.0.0.2 etcd members",
		},
		"no quorum": {
			[]witness{testifies(1, 0, "Running"), testifies(2, 0, "Running")},
			"etcd has no quorum", "talosctl -n 10.0.0.1 logs etcd",
		},
		"a learner that was added and did not start": {
			[]witness{unstarted, testifies(2, 0, "Preparing")},
			"has not started its member: its disk holds data of an earlier cluster", "talosctl -n 10.0.0.2 service etcd",
		},
		"a member that is no machine": {
			[]witness{testifies(1, 1, "Running", 1, 2, 7), testifies(2, 1, "Running", 1, 2, 7)},
			"a member at 10.0.0.7, which is none of the control planes", "talosctl -n 10.0.0.1 etcd members",
		},
		"stuck in Preparing": {
			[]witness{testifies(1, 1, "Running", 1), testifies(2, 0, "Preparing")},
			"etcd on 10.0.0.2 is stuck in Preparing", "talosctl -n 10.0.0.2 service etcd",
		},
		"something else": {
			[]witness{testifies(1, 1, "Running", 1), testifies(2, 0, "Failed")},
			"etcd on 10.0.0.2 is Failed: image is not there", "talosctl -n 10.0.0.2 logs etcd",
		},
		"nothing known":        {[]witness{testifies(1, 1, "Running", 1)}, "", ""},
		"nobody may be asked":  {[]witness{forbidden}, "", ""},
		"a port is no address": {[]witness{{endpoint: "10.0.0.9:50000", problem: &problem{what: "i/o timeout"}}}, "10.0.0.9 is off", "talosctl -n 10.0.0.9 version"},
	} {
		h := etcdCause(c.heard)
		if !strings.Contains(h.cause, c.cause) || (c.cause == "" && h.cause != "") || h.look != c.look {
			t.Errorf("%s: got %q and %q", name, h.cause, h.look)
		}
	}
	if h := addressCause(netip.MustParseAddr("10.0.0.10"))([]witness{forbidden}); h != (hint{}) {
		t.Errorf("nobody may be asked: %+v", h)
	}
}

func TestTwoHoldersDoNotElectTogether(t *testing.T) {
	h := addressCause(netip.MustParseAddr("10.0.0.10"))([]witness{
		at(testifies(1, 1, "Running", 1, 2), "10.0.0.10/32"), at(testifies(2, 1, "Running", 1, 2), "10.0.0.10/32"),
	})
	if !strings.HasPrefix(h.cause, "10.0.0.1 and 10.0.0.2 do not elect together") || h.look != "talosctl -n 10.0.0.1,10.0.0.2 etcd members" {
		t.Errorf("got %+v", h)
	}
}

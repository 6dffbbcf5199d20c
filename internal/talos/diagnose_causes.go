package talos

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// hint is a likely cause and a command that shows more; empty if no known cause fits.
type hint struct {
	cause, look string
	kind        gate.Kind // for code that decides on the cause; mostly empty
}

// etcdRules find the cause of an etcd that is not healthy. A rule stands before
// those whose findings would follow from its own.
var etcdRules = []func([]nodeView) hint{
	unreachable, eachNode(alarm), notBootstrapped, splitCluster, eachNode(noQuorum),
	stuckLearner, ghostMember, eachNode(preparing), eachNode(unhealthy),
}

// etcdCause returns the hint of the first rule that fits.
func etcdCause(nodes []nodeView) hint {
	for _, rule := range etcdRules {
		if h := rule(nodes); h != (hint{}) {
			return h
		}
	}
	return hint{}
}

// eachNode is a rule that fits if it fits one of the nodes.
func eachNode(rule func(nodeView) hint) func([]nodeView) hint {
	return func(nodes []nodeView) hint {
		for _, n := range nodes {
			if h := rule(n); h != (hint{}) {
				return h
			}
		}
		return hint{}
	}
}

// because is the hint for a cause that talosctl shows on these hosts.
func because(hosts, command, cause string) hint {
	return hint{cause: cause, look: "talosctl -n " + strings.ReplaceAll(hosts, " ", "") + " " + command}
}

// unreachable finds a machine that does not answer, or not as a machine of this cluster.
func unreachable(nodes []nodeView) hint {
	var silent []nodeView
	for _, n := range nodes {
		if n.problem == nil || n.problem.permanent {
			continue
		}
		silent = append(silent, n)
		if n.problem.kind == unknownCA {
			return because(n.host(), "get machinestatus --insecure",
				n.host()+" waits for its configuration, or has an earlier cluster's; then reset it")
		}
	}
	if len(silent) == 0 {
		return hint{}
	}
	return because(silent[0].host(), "version",
		hosts(silent)+" is off, boots or installs itself, or its address differs from the configuration")
}

func alarm(n nodeView) hint {
	if len(n.etcd.alarms) == 0 {
		return hint{}
	}
	cause := "the data of an etcd member is damaged: reset that machine, and it joins again"
	if n.etcd.alarms[0].GetAlarm() == machineapi.EtcdMemberAlarm_NOSPACE {
		cause = "etcd's database is full: defragment it and disarm the alarm; until then it rejects writes"
	}
	return because(n.host(), "etcd alarm list", cause)
}

// notBootstrapped fits if etcd waits on all machines for a cluster to join.
func notBootstrapped(nodes []nodeView) hint {
	for _, n := range nodes {
		if n.service("etcd").GetState() != "Preparing" {
			return hint{}
		}
	}
	h := because(nodes[0].host(), "service etcd",
		"etcd was never bootstrapped, or its data is gone: every control plane waits for a cluster to join")
	h.kind = gate.NeverBootstrapped
	return h
}

func splitCluster(nodes []nodeView) hint {
	views := etcdViews(nodes)
	if len(memberDisagreement(views, memberNames(views))) == 0 {
		return hint{}
	}
	return because(hosts(nodes), "etcd members", "two etcd clusters have formed: more than one "+
		"control plane was bootstrapped, or the disk of an earlier cluster was used again")
}

func noQuorum(n nodeView) hint {
	if n.etcd.status == nil || n.etcd.status.GetLeader() != 0 {
		return hint{}
	}
	return because(n.host(), "logs etcd",
		"etcd has no quorum: more than half of its members must run and reach each other on port 2380")
}

// stuckLearner finds a member that is not promoted; etcd admits no other meanwhile.
func stuckLearner(nodes []nodeView) hint {
	views := etcdViews(nodes)
	names := memberNames(views)
	for _, v := range views {
		i := slices.IndexFunc(v.members, (*machineapi.EtcdMember).GetIsLearner)
		if i < 0 {
			continue
		}
		m, host := v.members[i], peerHost(v.members[i])
		if m.GetHostname() == "" {
			return because(host, "service etcd", "etcd has admitted "+host+", which has not started its "+
				"member: its disk holds an earlier cluster, or it cannot reach the others on port 2380")
		}
		return because(host, "logs etcd", names[m.GetId()]+" stays a learner: it does not catch up with "+
			"the leader (slow disk, or port 2380 blocked), and no other machine can join meanwhile")
	}
	return hint{}
}

// ghostMember finds a member that belongs to none of the control planes.
func ghostMember(nodes []nodeView) hint {
	known := map[netip.Addr]bool{}
	for _, n := range nodes {
		a, err := netip.ParseAddr(n.host())
		if err != nil {
			return hint{} // a host name does not show which member it is
		}
		known[a] = true
	}
	for _, n := range nodes {
		for _, m := range n.etcd.members {
			if a, err := netip.ParseAddr(peerHost(m)); err == nil && !known[a] {
				return because(n.host(), "etcd members", fmt.Sprintf("etcd still counts a member at %s, "+
					"which is none of the control planes: an earlier machine that was not removed", a))
			}
		}
	}
	return hint{}
}

func preparing(n nodeView) hint {
	if n.service("etcd").GetState() != "Preparing" {
		return hint{}
	}
	return because(n.host(), "service etcd", "etcd on "+n.host()+" is stuck in Preparing: an old disk, "+
		"or a member that used the same address before, blocks it; reset the machine")
}

// unhealthy finds an etcd that fails for a reason that no other rule knows.
func unhealthy(n nodeView) hint {
	s := n.service("etcd")
	if s == nil || s.GetState() == "Running" && health(s) != "Fail" {
		return hint{}
	}
	cause := fmt.Sprintf("etcd on %s is %s: %s", n.host(), s.GetState(), lastEvent(s))
	return because(n.host(), "logs etcd", cause)
}

// addressCause finds the cause of a virtual address without a holder, with
// several, or with a new one again and again.
func addressCause(address netip.Addr) func([]nodeView) hint {
	return func(nodes []nodeView) hint {
		if h := etcdCause(nodes); h.cause != "" {
			if unreachable(nodes) != h {
				h.cause = "the control planes elect the holder through etcd, and " + h.cause
			}
			return h
		}
		var holders, links []string
		for _, n := range nodes {
			if n.problem != nil {
				return hint{} // its reason is the whole cause
			}
			links = append(links, n.links...)
			for _, a := range n.addresses {
				if a.Address.Addr().Unmap() == address.Unmap() {
					holders = append(holders, n.host())
				}
			}
		}
		slices.Sort(links)
		switch len(holders) {
		case 0:
			return because(hosts(nodes), "get links",
				"etcd is healthy, so the configuration names no virtual address, or a link that "+
					"the machines do not have (theirs: "+strings.Join(slices.Compact(links), ", ")+")")
		case 1:
			return because(holders[0], "logs controller-runtime",
				"its holder restarts, or loses its etcd session again and again (slow disks, lost packets)")
		}
		return because(hosts(nodes), "etcd members", strings.Join(holders, " and ")+
			" do not elect together: each was bootstrapped, or one lost its connection to etcd")
	}
}

func etcdViews(nodes []nodeView) []etcdView {
	var all []etcdView
	for _, n := range nodes {
		all = append(all, n.etcd)
	}
	return all
}

func hosts(nodes []nodeView) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.host())
	}
	return strings.Join(all, ", ")
}

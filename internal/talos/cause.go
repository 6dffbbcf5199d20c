package talos

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// hint is a likely cause and where to look further; empty if nothing known fits.
type hint struct{ cause, look string }

const neverBootstrapped = "etcd was never bootstrapped, or its data is gone: every control plane waits to join a cluster that does not exist"

// kind is what castle decides on; empty for most causes.
func (h hint) kind() gate.Kind {
	if h.cause == neverBootstrapped {
		return gate.NeverBootstrapped
	}
	return ""
}

// firstOf returns the first hint that fits, in the order of what makes the
// others follow.
func firstOf(heard []witness, rules ...func([]witness) hint) hint {
	for _, rule := range rules {
		if h := rule(heard); h.cause != "" {
			return h
		}
	}
	return hint{}
}

// etcdCause is the likely cause of an etcd that is not whole.
func etcdCause(heard []witness) hint {
	return firstOf(heard, silence, alarm, notBootstrapped, split, noQuorum, learner, ghost, preparing, sick)
}

// silence is a machine that does not answer, or not as this cluster's.
func silence(heard []witness) hint {
	var silent []witness
	for _, w := range heard {
		if w.problem != nil && !w.problem.permanent {
			silent = append(silent, w)
		}
	}
	if len(silent) == 0 {
		return hint{}
	}
	if foreign := slices.IndexFunc(silent, func(w witness) bool { return strings.HasPrefix(w.problem.what, noCertificate) }); foreign >= 0 {
		host := silent[foreign].host()
		return hint{
			host + " waits for its configuration, or its disk holds another cluster's from before: then it has to be reset",
			"talosctl -n " + host + " get machinestatus --insecure",
		}
	}
	return hint{
		hosts(silent) + " is off, boots or installs itself, or has another address than the configuration says",
		"talosctl -n " + silent[0].host() + " version",
	}
}

func alarm(heard []witness) hint {
	for _, w := range heard {
		if len(w.etcd.alarms) == 0 {
			continue
		}
		cause := "a member's data is damaged: that machine has to be reset, so that it joins anew"
		if w.etcd.alarms[0].GetAlarm() == machineapi.EtcdMemberAlarm_NOSPACE {
			cause = "etcd's database is full: it takes no write until it is defragmented and the alarm is disarmed"
		}
		return hint{cause, "talosctl -n " + w.host() + " etcd alarm list"}
	}
	return hint{}
}

// notBootstrapped is a fleet in which every etcd waits for another.
func notBootstrapped(heard []witness) hint {
	for _, w := range heard {
		if w.service("etcd").GetState() != "Preparing" {
			return hint{}
		}
	}
	return hint{
		neverBootstrapped,
		"talosctl -n " + heard[0].host() + " service etcd",
	}
}

func split(heard []witness) hint {
	views := viewsOf(heard)
	if len(disagreement(views, memberNames(views))) == 0 {
		return hint{}
	}
	return hint{
		"two etcd clusters have formed: more than one control plane was bootstrapped, or the disk of an earlier cluster was used again",
		"talosctl -n " + strings.ReplaceAll(hosts(heard), " ", "") + " etcd members",
	}
}

func noQuorum(heard []witness) hint {
	for _, w := range heard {
		if w.etcd.status != nil && w.etcd.status.GetLeader() == 0 {
			return hint{
				"etcd has no quorum: more than half of its members must run and reach each other on port 2380",
				"talosctl -n " + w.host() + " logs etcd",
			}
		}
	}
	return hint{}
}

// learner is a member that does not come to vote; etcd takes no other meanwhile.
func learner(heard []witness) hint {
	views := viewsOf(heard)
	names := memberNames(views)
	for _, v := range views {
		for _, m := range v.members {
			if !m.GetIsLearner() {
				continue
			}
			host := peerHost(m)
			if m.GetHostname() == "" {
				return hint{
					"etcd has taken in " + host + ", which has not started its member: its disk holds data of an earlier cluster, or it cannot reach the others on port 2380",
					"talosctl -n " + host + " service etcd",
				}
			}
			return hint{
				names[m.GetId()] + " stays a learner: it does not catch up with the leader (slow disk, or port 2380 blocked between them), and no other machine can join meanwhile",
				"talosctl -n " + host + " logs etcd",
			}
		}
	}
	return hint{}
}

// ghost is a member that is none of the control planes.
func ghost(heard []witness) hint {
	known := map[netip.Addr]bool{}
	for _, w := range heard {
		a, err := netip.ParseAddr(w.host())
		if err != nil {
			return hint{} // a name: nobody can tell which member it is
		}
		known[a] = true
	}
	for _, w := range heard {
		for _, m := range w.etcd.members {
			if a, err := netip.ParseAddr(peerHost(m)); err == nil && !known[a] {
				return hint{
					fmt.Sprintf("etcd still counts a member at %s, which is none of the control planes: an earlier machine that nobody removed", a),
					"talosctl -n " + w.host() + " etcd members",
				}
			}
		}
	}
	return hint{}
}

func preparing(heard []witness) hint {
	for _, w := range heard {
		if w.service("etcd").GetState() == "Preparing" {
			return hint{
				"etcd on " + w.host() + " is stuck in Preparing: a member of its former life, an address used before or an old disk is in the way; reset it",
				"talosctl -n " + w.host() + " service etcd",
			}
		}
	}
	return hint{}
}

// sick is an etcd that is in no known trouble and yet not well.
func sick(heard []witness) hint {
	for _, w := range heard {
		if s := w.service("etcd"); s != nil && (s.GetState() != "Running" || health(s) == "Fail") {
			return hint{
				fmt.Sprintf("etcd on %s is %s: %s", w.host(), s.GetState(), lastEvent(s)),
				"talosctl -n " + w.host() + " logs etcd",
			}
		}
	}
	return hint{}
}

// addressCause is the likely cause of a virtual address that nobody holds, or
// too many, or that moves about.
func addressCause(address netip.Addr) func([]witness) hint {
	return func(heard []witness) hint {
		if h := etcdCause(heard); h.cause != "" {
			if silence(heard) != h {
				h.cause = "the control planes elect the holder through etcd, and " + h.cause
			}
			return h
		}
		var holders, links []string
		for _, w := range heard {
			if w.problem != nil {
				return hint{} // its words say all
			}
			links = append(links, w.links...)
			for _, a := range w.addresses {
				if a.Address.Addr().Unmap() == address.Unmap() {
					holders = append(holders, w.host())
				}
			}
		}
		slices.Sort(links)
		all := strings.ReplaceAll(hosts(heard), " ", "")
		switch len(holders) {
		case 0:
			return hint{
				fmt.Sprintf("etcd is well, so the configuration names no virtual address, or a link that the machines do not have (theirs: %s)",
					strings.Join(slices.Compact(links), ", ")),
				"talosctl -n " + all + " get links",
			}
		case 1:
			return hint{
				"its holder restarts, or loses its session in etcd again and again (slow disks, lost packets)",
				"talosctl -n " + holders[0] + " logs controller-runtime",
			}
		}
		return hint{
			strings.Join(holders, " and ") + " do not elect together: each was bootstrapped, or one has lost touch with etcd",
			"talosctl -n " + all + " etcd members",
		}
	}
}

func viewsOf(heard []witness) []view {
	var all []view
	for _, w := range heard {
		all = append(all, w.etcd)
	}
	return all
}

func hosts(heard []witness) string {
	var all []string
	for _, w := range heard {
		all = append(all, w.host())
	}
	return strings.Join(all, ", ")
}

// hostOf is an endpoint without its port.
func hostOf(endpoint string) string {
	if host, _, err := net.SplitHostPort(endpoint); err == nil {
		return host
	}
	return endpoint
}

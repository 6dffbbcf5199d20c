package talos

import (
	"fmt"
	"net/url"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// memberNames names every member that anybody lists: by hostname, or by address
// while it has not started.
func memberNames(views []view) map[uint64]string {
	names := map[uint64]string{}
	for _, v := range views {
		for _, m := range v.members {
			names[m.GetId()] = m.GetHostname()
			if m.GetHostname() == "" {
				names[m.GetId()] = peerHost(m) + ", not started"
			}
		}
	}
	for _, v := range views {
		for _, id := range []uint64{v.status.GetMemberId(), v.status.GetLeader()} {
			if id != 0 && names[id] == "" {
				names[id] = fmt.Sprintf("member %016x", id)
			}
		}
	}
	return names
}

func peerHost(m *machineapi.EtcdMember) string {
	for _, peer := range m.GetPeerUrls() {
		if u, err := url.Parse(peer); err == nil && u.Hostname() != "" {
			return u.Hostname()
		}
	}
	return fmt.Sprintf("member %016x", m.GetId())
}

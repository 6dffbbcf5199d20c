// Package namespace runs a command in a network of its own, which no packet can leave, and with
// file mounts that only the command sees.
//
// Run starts the program again as the first process of new network, mount and process namespaces
// (and of a new user namespace if the caller is not root). That process, Init, brings up the
// loopback, adds the requested addresses, mounts a hosts file and proves that the network is
// isolated. Only then does it start the command. When Init or the caller of Run ends, the kernel kills
// everything in the process namespace; no process survives a rehearsal.
//
// The network is isolated because it contains only the loopback: no firewall rule could be wrong.
// Prove checks exactly this. Code that serves or calls addresses of the real world requires its
// Proof.
package namespace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

// Spec describes the environment of the command.
type Spec struct {
	Addresses []netip.Addr   // answered by this machine
	Ranges    []netip.Prefix // likewise, whole
	Hosts     []string       // names that resolve to Front, and no others do
	Front     netip.Addr
	Names     map[string]netip.Addr // names that resolve to an address of their own
	Mounts    []Mount
	Files     string // an existing directory for the files that are mounted
}

// Mount replaces a path in the command's view of the file system.
type Mount struct {
	Path string
	// From is the file or folder to mount at Path; if empty, Path itself becomes read-only.
	From string
}

// Proof proves that this process is inside. Only Prove returns one.
type Proof struct{ network string }

// String names the network namespace that was proved to be shut.
func (p Proof) String() string { return p.network }

// Allows is nil for an address that may be served and called: any, once the
// network is proved to be shut, and the loopback's always.
func (p Proof) Allows(a netip.Addr) error {
	if p.network == "" && !a.IsLoopback() {
		return fmt.Errorf("address %s: the lab uses it only inside its own network namespace", a)
	}
	return nil
}

// Network names the network namespace of this process.
func Network() (string, error) { return os.Readlink("/proc/self/ns/net") }

// Prove checks that no packet can leave this process's network: it is another
// one than outside, nothing but the loopback is up, and no route leads elsewhere.
func Prove(outside string) (Proof, error) {
	inside, err := separate(outside)
	if err != nil {
		return Proof{}, err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return Proof{}, err
	}
	loopback := -1
	for _, i := range interfaces {
		switch {
		case i.Flags&net.FlagLoopback != 0:
			loopback = i.Index
		case i.Flags&net.FlagUp != 0: // some kernels put tunnels that are down into every namespace
			return Proof{}, fmt.Errorf("network: interface %s is up", i.Name)
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return Proof{}, fmt.Errorf("routes: %w", err)
	}
	for _, r := range routes {
		if r.LinkIndex != loopback && r.LinkIndex != 0 {
			return Proof{}, fmt.Errorf("network: route %s leaves the loopback", r)
		}
	}
	return Proof{inside}, nil
}

// separate is the first half of the proof, and what must hold before this
// process may change anything about its network: it is not the one outside.
func separate(outside string) (string, error) {
	if outside == "" {
		return "", errors.New("network: the namespace outside is not known")
	}
	inside, err := Network()
	if err != nil {
		return "", err
	}
	if inside == outside {
		return "", fmt.Errorf("network: this process is still in the namespace outside, %s", outside)
	}
	return inside, nil
}

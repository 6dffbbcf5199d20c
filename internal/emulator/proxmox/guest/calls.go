package guest

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// Each of these is enough for a part of a call.
const (
	anyConfig = "VM.Config.Disk|VM.Config.CDROM|VM.Config.CPU|VM.Config.Memory|VM.Config.Network|" +
		"VM.Config.HWType|VM.Config.Options|VM.Config.Cloudinit"
	mayRollBack = "VM.Snapshot|VM.Snapshot.Rollback"
	anySnapshot = mayRollBack + "|VM.Audit"
)

// Routes has the calls about guests, their pools and their hardware.
func (s *Guests) Routes() map[string]rpc.Handler {
	const (
		guest    = "nodes/{node}/qemu/{vmid}"
		snapshot = guest + "/snapshot"
	)
	vm := func(privilege string, handle guestHandler) rpc.Handler {
		return s.onGuest("qemu", privilege, handle)
	}
	return map[string]rpc.Handler{
		"GET cluster/mapping/pci":  s.listMappings("pci"),
		"GET cluster/mapping/usb":  s.listMappings("usb"),
		"GET nodes/{node}/network": s.listBridges,

		"PUT pools":                                      s.updatePool,
		"GET pools":                                      s.listPools,
		"GET cluster/replication":                        s.replication,
		"GET cluster/nextid":                             s.nextID,
		"GET nodes/{node}/qemu":                          s.listGuests,
		"POST nodes/{node}/qemu":                         s.create,
		"GET nodes/{node}/lxc/{vmid}/config":             s.onGuest("lxc", "VM.Audit", showConfig),
		"GET " + guest + "/config":                       vm("VM.Audit", showConfig),
		"GET " + guest + "/pending":                      vm("VM.Audit", showPending),
		"PUT " + guest + "/config":                       vm(anyConfig, s.update),
		"PUT " + guest + "/resize":                       vm("VM.Config.Disk", s.resize),
		"PUT " + guest + "/cloudinit":                    vm("VM.Config.Cloudinit", regenerate),
		"POST " + guest + "/agent/ping":                  vm("VM.GuestAgent.Audit", s.agentPing),
		"GET " + guest + "/agent/network-get-interfaces": vm("VM.GuestAgent.Audit", s.agentCards),
		"GET " + guest + "/status/current":               vm("VM.Audit", showStatus),
		"POST " + guest + "/status/start":                s.power("start", s.start),
		"POST " + guest + "/status/stop":                 s.power("stop", s.stop),
		"POST " + guest + "/status/shutdown":             s.power("shutdown", s.stop),
		"POST " + guest + "/status/reboot":               s.power("reboot", s.reboot),
		"POST " + guest + "/clone":                       vm("VM.Clone", s.clone),
		"POST " + guest + "/migrate":                     vm("VM.Migrate", s.migrate),
		"GET " + snapshot:                                vm("VM.Audit", listSnapshots),
		"POST " + snapshot:                               vm("VM.Snapshot", s.takeSnapshot),
		"GET " + snapshot + "/{snapname}/config":         vm(anySnapshot, showSnapshot),
		"POST " + snapshot + "/{snapname}/rollback": vm(mayRollBack,
			onSnapshot("qmrollback", "rollback", s.rollBack)),
		"DELETE " + snapshot + "/{snapname}": vm("VM.Snapshot",
			onSnapshot("qmdelsnapshot", "snapshot-delete", s.removeSnapshot)),
		"POST nodes/{node}/vzdump": s.backup,
		"DELETE " + guest:          vm("VM.Allocate", s.destroy),
	}
}

// guestHandler answers a call about one guest.
type guestHandler func(*rpc.Call, *Guest) (any, error)

// onGuest is a handler for a call about one guest. It checks, in the order of a real node, first the
// privilege, one of several with | between them, and then whether the guest exists.
func (s *Guests) onGuest(kind, privilege string, handle guestHandler) rpc.Handler {
	return func(c *rpc.Call) (any, error) {
		id, node := c.VMID(), c.Get("node")
		if err := c.Caller.CheckAny(access.VMPath(id), strings.Split(privilege, "|")...); err != nil {
			return nil, err
		}
		g := s.all[id]
		if g == nil || g.Node != node || g.Kind != kind {
			return nil, missing(node, kind, id)
		}
		return handle(c, g)
	}
}

// missing is the answer for a guest that does not exist, or not on that node.
func missing(node, kind string, id int) *failure.Answer {
	folder := strings.Replace(kind, "qemu", "qemu-server", 1)
	return failure.Internal("Configuration file 'nodes/%s/%s/%d.conf' does not exist", node, folder, id)
}

// Rows lists the guests by id; row returns nil for those that the list leaves out.
func (s *Guests) Rows(row func(*Guest) map[string]any) []any {
	rows := []any{}
	for _, id := range sortedKeys(s.all) {
		if r := row(s.all[id]); r != nil {
			rows = append(rows, r)
		}
	}
	return rows
}

// nextID knows every guest, visible or not, containers included: only this call
// shows whether an id is in use.
func (s *Guests) nextID(c *rpc.Call) (any, error) {
	if id := c.VMID(); id != 0 && s.all[id] != nil {
		return nil, failure.BadParameter("vmid", "VM %d already exists", id)
	} else if id != 0 {
		return strconv.Itoa(id), nil
	}
	id := 100
	for s.all[id] != nil {
		id++
	}
	return strconv.Itoa(id), nil
}

// listGuests lists a node's virtual machines.
func (s *Guests) listGuests(c *rpc.Call) (any, error) {
	return s.Rows(func(g *Guest) map[string]any {
		if g.Kind != "qemu" || g.Node != c.Get("node") || !c.Caller.May(access.VMPath(g.ID), "VM.Audit") {
			return nil
		}
		return g.Row()
	}), nil
}

// regenerate writes the cloud-init drive again, without a visible effect.
func regenerate(*rpc.Call, *Guest) (any, error) { return nil, nil }

// agent reports whether the configuration enables the guest agent.
func (g *Guest) agent() bool {
	return option.Parse(g.Config["agent"], "enabled")["enabled"] == "1"
}

// told returns the addresses that the agent of a guest tells.
func (s *Guests) told(g *Guest) (addresses []netip.Prefix, err error) {
	addresses, runs := []netip.Prefix{g.View().Address}, true
	if s.config.Agent != nil {
		addresses, runs = s.config.Agent(g.View())
	}
	switch {
	case !g.agent():
		return nil, failure.Internal("No QEMU guest agent configured")
	case !g.Running:
		return nil, failure.Internal("VM %d is not running", g.ID)
	case !runs:
		return nil, failure.Internal("QEMU guest agent is not running")
	}
	return addresses, nil
}

func (s *Guests) agentPing(_ *rpc.Call, g *Guest) (any, error) {
	_, err := s.told(g)
	return map[string]any{"result": map[string]any{}}, err
}

// agentCards reports the addresses of the first card. A card without one has no list of them.
func (s *Guests) agentCards(_ *rpc.Call, g *Guest) (any, error) {
	addresses, err := s.told(g)
	card := func(name, mac string, addresses ...netip.Prefix) any {
		var all []any
		for _, a := range addresses {
			if family := "ipv4"; a.IsValid() {
				if a.Addr().Is6() {
					family = "ipv6"
				}
				all = append(all, map[string]any{"ip-address": a.Addr().String(), "ip-address-type": family,
					"prefix": a.Bits()})
			}
		}
		shown := map[string]any{"name": name, "hardware-address": mac}
		if len(all) > 0 {
			shown["ip-addresses"] = all
		}
		return shown
	}
	return map[string]any{"result": []any{
		card("lo", "00:00:00:00:00:00", netip.MustParsePrefix("127.0.0.1/8"),
			netip.MustParsePrefix("::1/128")),
		card("ens18", strings.ToLower(option.MAC(g.Config["net0"])), addresses...),
	}}, err
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func showStatus(_ *rpc.Call, g *Guest) (any, error) {
	out := g.Row()
	out["qmpstatus"] = g.status()
	out["cpus"] = out["maxcpu"]
	delete(out, "maxcpu")
	out["ha"] = map[string]any{"managed": option.Number(g.HA)}
	if g.Running {
		out["pid"] = 20000 + g.ID
	}
	if g.agent() {
		out["agent"] = 1
	}
	return out, nil
}

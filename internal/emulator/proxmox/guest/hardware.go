package guest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// Mapping is a resource mapping of the datacenter: one device of each of its nodes, under one name.
type Mapping struct {
	Kind  string // pci or usb
	Name  string
	Nodes []string // all, if empty
}

// on reports whether a node has a device of the mapping.
func (m Mapping) on(node string) bool { return len(m.Nodes) == 0 || slices.Contains(m.Nodes, node) }

// hasMapping reports whether a node has a device of the mapping of this name.
func (c *Config) hasMapping(kind, name, node string) bool {
	return slices.ContainsFunc(c.Mappings, func(m Mapping) bool {
		return m.Kind == kind && m.Name == name && m.on(node)
	})
}

// listBridges lists a node's bridges that the caller may use (PVE/API2/Network.pm).
func (s *Guests) listBridges(c *rpc.Call) (any, error) {
	if kind := c.Get("type"); kind != "any_bridge" {
		return nil, failure.BadParameter("type", "the emulator knows any_bridge alone, not '%s'", kind)
	}
	rows := []any{}
	for _, bridge := range s.config.Bridges {
		path := "/sdn/zones/localnetwork/" + bridge
		if c.Caller.CheckAny(path, "SDN.Use", "SDN.Audit") == nil {
			rows = append(rows, map[string]any{"iface": bridge, "type": "bridge", "active": 1})
		}
	}
	return rows, nil
}

// listMappings lists the resource mappings that the caller may see (PVE/API2/Cluster/Mapping).
func (s *Guests) listMappings(kind string) rpc.Handler {
	return func(c *rpc.Call) (any, error) {
		rows := []any{}
		for _, m := range s.config.Mappings {
			path := "/mapping/" + kind + "/" + m.Name
			seen := c.Caller.CheckAny(path, "Mapping.Modify", "Mapping.Use", "Mapping.Audit") == nil
			if m.Kind != kind || !seen {
				continue
			}
			var devices []string
			for i, node := range s.config.Nodes {
				if m.on(node) {
					device := fmt.Sprintf("id=10de:1db6,node=%s,path=0000:%02x:00.0", node, i+1)
					devices = append(devices, device)
				}
			}
			rows = append(rows, map[string]any{"id": m.Name, "map": devices, "description": ""})
		}
		return rows, nil
	}
}

// checkMapped is the error for a caller that may not give a machine a device. Only root may name a device
// itself instead of its mapping, and a token is never root (PVE/API2/Qemu.pm).
func (s *Guests) checkMapped(c *rpc.Call, id int, pool, key, value string) error {
	kind, real := "pci", "non-mapped"
	if strings.HasPrefix(key, "usb") {
		kind, real = "usb", "real"
	}
	device := option.Parse(value, "host")
	if device["mapping"] == "" && device["host"] != "spice" && c.Caller.ID != access.Root {
		return failure.Internal("only root can set '%s' config for %s devices", key, real)
	}
	if err := c.Caller.CheckVM(id, pool, "VM.Config.HWType"); err != nil || device["mapping"] == "" {
		return err
	}
	return c.Caller.Check("/mapping/"+kind+"/"+device["mapping"], "Mapping.Use")
}

// checkBalloon is the error for more memory with ballooning than without.
func (s *Guests) checkBalloon(c *rpc.Call, g *Guest) error {
	value := func(name string) int {
		n, _ := strconv.Atoi( //nolint:errcheck // 0: none
			cmp.Or(c.Get(name), g.Pending[name], g.Config[name]))
		return n
	}
	if value("balloon") > cmp.Or(value("memory"), 512) {
		return failure.Internal("balloon value too large (must be smaller than assigned memory)")
	}
	return nil
}

// startable is the error of a start on a node that lacks what the guest uses. Nothing of it is checked
// earlier: QEMU's command line is made at the start (PVE/QemuServer.pm, PCI.pm; pve-bridge).
func (g *Guest) startable(s *Guests, t *rpc.Task) error {
	q35 := strings.Contains(g.Config["machine"], "q35")
	for _, key := range sortedKeys(g.Config) {
		value := g.Config[key]
		name := option.Name(key)
		device := option.Parse(value, "host")
		switch mapping := device["mapping"]; {
		case name == "hostpci#" && !s.config.hasMapping("pci", mapping, g.Node):
			return fmt.Errorf("PCI device mapping not found for '%s'", mapping)
		case name == "hostpci#" && device["pcie"] == "1" && !q35:
			return errors.New("q35 machine model is not enabled")
		case name == "usb#" && mapping != "" && !s.config.hasMapping("usb", mapping, g.Node):
			return fmt.Errorf("USB device mapping not found for '%s'", mapping)
		case name == "hostpci#":
			if id := g.holder(s, mapping); id != 0 {
				return fmt.Errorf("PCI device '0000:01:00.0' already in use by VMID '%d'", id)
			}
		case option.KindOf(key) == option.NIC:
			card := option.Parse(value, "model")
			mtu, _ := strconv.Atoi(card["mtu"]) //nolint:errcheck // 0: the bridge's
			switch bridge := card["bridge"]; {
			case bridge != "" && !slices.Contains(s.config.Bridges, bridge):
				t.Print("bridge '%s' does not exist", bridge)
				return errors.New("start failed: QEMU exited with code 1")
			case mtu > bridgeMTU:
				return fmt.Errorf("netdev %s: MTU '%d' is bigger than the bridge MTU '%d'", key, mtu,
					bridgeMTU)
			}
		}
	}
	return nil
}

// bridgeMTU is that of every bridge.
const bridgeMTU = 1500

// holder is the running guest on the same node that has the one device of a mapping.
func (g *Guest) holder(s *Guests, mapping string) int {
	for _, id := range sortedKeys(s.all) {
		other := s.all[id]
		for key, value := range other.Config {
			if other != g && other.Running && other.Node == g.Node && strings.HasPrefix(key, "hostpci") &&
				option.Parse(value, "host")["mapping"] == mapping {
				return id
			}
		}
	}
	return 0
}

// deleted is the value of an option that the call deletes.
func (s *Guests) deleted(c *rpc.Call, id int, key string) string {
	if g := s.all[id]; g != nil && slices.Contains(option.SplitList(c.Get("delete")), key) {
		return g.Config[key]
	}
	return ""
}

// unplugged is the error for a card that cannot be plugged into a bridge while the guest runs. It waits for
// the next start then, which fails, too.
func (ch change) unplugged(s *Guests, g *Guest) error {
	for _, key := range sortedKeys(ch.plain) {
		bridge := option.Parse(ch.plain[key], "model")["bridge"]
		if option.KindOf(key) != option.NIC || !g.Running || bridge == "" ||
			slices.Contains(s.config.Bridges, bridge) {
			continue
		}
		if g.Pending == nil {
			g.Pending = map[string]string{}
		}
		g.Pending[key] = ch.plain[key]
		delete(ch.plain, key)
		return failure.BadParameter(key, "hotplug problem - bridge '%s' does not exist\n", bridge)
	}
	return nil
}

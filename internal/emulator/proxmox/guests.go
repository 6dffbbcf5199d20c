package proxmox

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VM is a guest as others see it: AddVM creates it, hooks and VMs return it.
type VM struct {
	ID         int
	Name       string
	Node       string // the first node, if empty
	Kind       string // qemu or lxc; qemu, if empty
	Pool       string
	Tags       []string
	Running    bool
	Hidden     bool   // the users that exist have no access to it
	HA         bool   // managed by the high-availability stack
	Replicated bool   // a replication job exists for it
	Deaf       bool   // its guest ignores ACPI: only a stop ends it
	Lock       string // create, backup, …
	Protection bool
	Template   bool
	// Config holds the raw options as the API stores them. In AddVM the fields above take precedence.
	Config map[string]string
	// Pending are the options that wait for the start of a running VM; an empty one is removed then.
	Pending map[string]string
	// Address and Gateway come from ipconfig0; both are zero without one. Second is its IPv6 address, if that
	// is not the only one.
	Address, Second netip.Prefix
	Gateway         netip.Addr
	// Image is the name of the file from which the first disk was imported, ImageURL
	// the URL from which the node downloaded it.
	Image, ImageURL string
	Started         time.Time

	snapshots map[string]*snapshot // by name
}

// guest is a VM as the server keeps it. As in a real configuration file, only Config holds name, tags, lock,
// protection, template and address.
type guest VM

// flags are the values of an option that AddVM and others switch on or off; an empty one removes it.
var flags = map[bool]string{true: "1"}

// AddVM adds a guest to the datacenter without an API call, with the disks that its Config names.
func (s *Server) AddVM(v VM) {
	defer s.locked()()
	addVM(s, v)
}

func addVM(s *Server, v VM) {
	g := guest(v)
	g.snapshots = nil // those of another guest, if it is a copy
	g.Node, g.Kind, g.Config = cmp.Or(v.Node, s.config.Nodes[0]), cmp.Or(v.Kind, "qemu"), map[string]string{}
	maps.Copy(g.Config, v.Config)
	for key, value := range map[string]string{
		"name": v.Name, "lock": v.Lock, "tags": strings.Join(v.Tags, ";"),
		"protection": flags[v.Protection], "template": flags[v.Template],
	} {
		g.set(key, cmp.Or(value, g.Config[key]))
	}
	if g.Running && g.Started.IsZero() {
		g.Started = time.Now()
	}
	s.guests[v.ID] = &g
	for user := range s.access.users {
		if v.Hidden {
			s.access.acl = append(s.access.acl, grant{path: vmPath(v.ID), who: user, role: noAccess})
		}
	}
	if v.Pool != "" {
		s.pools[v.Pool] = true
	}
	for volume, size := range g.ownVolumes() {
		s.addImage(&g, volume, size)
	}
}

func (s *Server) addImage(g *guest, volume string, size int64) {
	s.disks.store(g.Node, Disk{Volume: volume, Owner: g.ID, Size: size, Format: "raw", Content: "images"})
}

func (g *guest) name() string { return cmp.Or(g.Config["name"], "VM "+strconv.Itoa(g.ID)) }

func (g *guest) path() string { return g.Kind + "/" + strconv.Itoa(g.ID) }

func (g *guest) status() string {
	if g.Running {
		return "running"
	}
	return "stopped"
}

// set stores an option; an empty value removes it.
func (g *guest) set(key, value string) {
	g.Config[key] = value
	if value == "" {
		delete(g.Config, key)
	}
}

// locked is the error for a guest with a lock; nil without one.
func (g *guest) locked() error {
	if lock := g.Config["lock"]; lock != "" {
		return fmt.Errorf("VM is locked (%s)", lock)
	}
	return nil
}

func (g *guest) view() VM {
	v := VM(*g)
	v.Config, v.Pending = maps.Clone(g.Config), maps.Clone(g.Pending)
	v.Name, v.Lock = g.Config["name"], g.Config["lock"]
	v.Protection, v.Template = g.Config["protection"] == "1", g.Config["template"] == "1"
	if tags := g.Config["tags"]; tags != "" {
		v.Tags = strings.Split(tags, ";")
	}
	network := parseProperties(g.Config["ipconfig0"], "")
	v.Address, _ = netip.ParsePrefix(network["ip"]) // dhcp is no address: both stay zero
	v.Gateway, _ = netip.ParseAddr(network["gw"])
	if v.Second, _ = netip.ParsePrefix(network["ip6"]); !v.Address.IsValid() {
		v.Address, v.Second = v.Second, netip.Prefix{}
		v.Gateway, _ = netip.ParseAddr(network["gw6"])
	}
	return v
}

// row is a guest in a list.
func (g *guest) row() map[string]any {
	cores, _ := strconv.Atoi(g.Config["cores"])   //nolint:errcheck // 0 becomes 1
	memory, _ := strconv.Atoi(g.Config["memory"]) //nolint:errcheck // 0 becomes the default
	row := map[string]any{
		"vmid": g.ID, "name": g.name(), "status": g.status(), "maxcpu": max(cores, 1),
		"maxmem": cmp.Or(memory, 512) << 20, "maxdisk": 0, "cpu": 0, "mem": 0, "disk": 0,
		"netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0, "uptime": 0,
	}
	if g.Running {
		row["uptime"] = int(time.Since(g.Started).Seconds())
	}
	for _, key := range []string{"tags", "lock"} {
		if value := g.Config[key]; value != "" {
			row[key] = value
		}
	}
	if g.Config["template"] == "1" {
		row["template"] = 1
	}
	return row
}

// ownVolumes are the volumes that are deleted with the guest, with their sizes: its drives, attached
// or not, and the memory in its snapshots, but no CD image that other guests may use.
func (g *guest) ownVolumes() map[string]int64 {
	own := map[string]int64{}
	for _, s := range g.snapshots {
		if s.vmstate != "" {
			own[s.vmstate] = 0
		}
	}
	for _, options := range []map[string]string{g.Config, g.Pending} {
		for key, value := range options {
			volume, rest, _ := strings.Cut(value, ",")
			if (kindOf(key) == drive || isUnused(key)) && ownerOf(volume) == g.ID {
				own[volume], _ = parseSize(parseProperties(rest, "file")["size"]) // 0 without one
			}
		}
	}
	return own
}

var ownedVolume = regexp.MustCompile(`^[^:]+:(?:\d+/base-\d+-[^/]+/)?(?:\d+/)?(?:vm|base)-(\d+)-`)

// ownerOf reads the guest's id from a volume's name; 0 if it belongs to none.
func ownerOf(volume string) int {
	id := 0
	if found := ownedVolume.FindStringSubmatch(volume); found != nil {
		id, _ = strconv.Atoi(found[1]) //nolint:errcheck // the pattern is a number
	}
	return id
}

// onGuest is a handler for a call about one guest. It checks, in the order of a real node, first the
// privilege, one of several with | between them, and then whether the guest exists.
func onGuest(kind, privilege string, handle func(*call, *guest) (any, error)) handler {
	return func(c *call) (any, error) {
		s, id, node := c.s, c.vmid(), c.get("node")
		if err := c.caller.checkAny(vmPath(id), strings.Split(privilege, "|")...); err != nil {
			return nil, err
		}
		g := s.guests[id]
		if g == nil || g.Node != node || g.Kind != kind {
			return nil, missing(node, kind, id)
		}
		return handle(c, g)
	}
}

// missing is the answer for a guest that does not exist, or not on that node.
func missing(node, kind string, id int) *failure {
	folder := strings.Replace(kind, "qemu", "qemu-server", 1)
	return internal("Configuration file 'nodes/%s/%s/%d.conf' does not exist", node, folder, id)
}

// rows lists the guests by id; row returns nil for those that the list leaves out.
func (c *call) rows(row func(*guest) map[string]any) []any {
	rows := []any{}
	for _, id := range sortedKeys(c.s.guests) {
		if r := row(c.s.guests[id]); r != nil {
			rows = append(rows, r)
		}
	}
	return rows
}

// nextID knows every guest, visible or not, containers included: only this call
// shows whether an id is in use.
func nextID(c *call) (any, error) {
	if id := c.vmid(); id != 0 && c.s.guests[id] != nil {
		return nil, badParameter("vmid", "VM %d already exists", id)
	} else if id != 0 {
		return strconv.Itoa(id), nil
	}
	id := 100
	for c.s.guests[id] != nil {
		id++
	}
	return strconv.Itoa(id), nil
}

// listGuests lists a node's virtual machines.
func listGuests(c *call) (any, error) {
	return c.rows(func(g *guest) map[string]any {
		if g.Kind != "qemu" || g.Node != c.get("node") || !c.caller.may(vmPath(g.ID), "VM.Audit") {
			return nil
		}
		return g.row()
	}), nil
}

// regenerate writes the cloud-init drive again, without a visible effect.
func regenerate(*call, *guest) (any, error) { return nil, nil }

// agent reports whether the configuration enables the guest agent.
func (g *guest) agent() bool {
	return parseProperties(g.Config["agent"], "enabled")["enabled"] == "1"
}

func agentPing(_ *call, g *guest) (any, error) {
	switch {
	case !g.agent():
		return nil, internal("No QEMU guest agent configured")
	case !g.Running:
		return nil, internal("VM %d is not running", g.ID)
	}
	return map[string]any{"result": map[string]any{}}, nil
}

// agentCards reports the address of ipconfig0 on the first card.
func agentCards(c *call, g *guest) (any, error) {
	if _, err := agentPing(c, g); err != nil {
		return nil, err
	}
	card := func(name, mac, address string, bits int) any {
		return map[string]any{"name": name, "hardware-address": mac, "ip-addresses": []any{
			map[string]any{"ip-address": address, "ip-address-type": "ipv4", "prefix": bits},
		}}
	}
	cards := []any{card("lo", "00:00:00:00:00:00", "127.0.0.1", 8)}
	if a := g.view().Address; a.IsValid() {
		cards = append(cards, card("eth0", strings.ToLower(g.mac("net0")), a.Addr().String(), a.Bits()))
	}
	return map[string]any{"result": cards}, nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

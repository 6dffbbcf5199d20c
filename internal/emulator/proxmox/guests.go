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
	"sync"
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
	Hidden     bool   // exists, but no caller has VM.Audit on it
	HA         bool   // managed by the high-availability stack
	Replicated bool   // a replication job exists for it
	Lock       string // create, backup, …
	Protection bool
	Template   bool
	// Config holds the raw options as the API stores them. In AddVM the fields above
	// take precedence.
	Config map[string]string
	// Address and Gateway come from ipconfig0; both are zero without one.
	Address netip.Prefix
	Gateway netip.Addr
	// Image is the name of the file from which the first disk was imported, ImageURL
	// the URL from which the node downloaded it.
	Image, ImageURL string
	Started         time.Time
}

// guest is a VM as the server keeps it. As in a real configuration file, only Config holds name, tags, lock,
// protection, template and address.
type guest VM

func (g *guest) name() string { return cmp.Or(g.Config["name"], "VM "+strconv.Itoa(g.ID)) }

func (g *guest) status() string {
	if g.Running {
		return "running"
	}
	return "stopped"
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
	v.Config = maps.Clone(g.Config)
	v.Name, v.Lock = g.Config["name"], g.Config["lock"]
	v.Protection, v.Template = g.Config["protection"] == "1", g.Config["template"] == "1"
	if tags := g.Config["tags"]; tags != "" {
		v.Tags = strings.Split(tags, ";")
	}
	network := parseProperties(g.Config["ipconfig0"], "")
	v.Address, _ = netip.ParsePrefix(network.get("ip")) // dhcp is no address: both stay zero
	v.Gateway, _ = netip.ParseAddr(network.get("gw"))
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

// ownVolumes are the volumes that are deleted with the guest: its drives, attached
// or not, but no CD image that other guests may use.
func (g *guest) ownVolumes() []string {
	var own []string
	for _, key := range sortedKeys(g.Config) {
		if kindOf(key) != drive && !strings.HasPrefix(key, "unused") {
			continue
		}
		if volume, _, _ := strings.Cut(g.Config[key], ","); ownerOf(volume) == g.ID {
			own = append(own, volume)
		}
	}
	return own
}

var ownedVolume = regexp.MustCompile(`^[^:]+:(?:\d+/)?(?:vm|base)-(\d+)-`)

// ownerOf reads the guest's id from a volume's name; 0 if it belongs to none.
func ownerOf(volume string) int {
	found := ownedVolume.FindStringSubmatch(volume)
	if found == nil {
		return 0
	}
	id, _ := strconv.Atoi(found[1])
	return id
}

// guests keeps the guests and answers the calls about their configuration.
type guests struct {
	config  *Config
	tasks   *tasks
	storage *storages
	mu      *sync.Mutex // for the hooks, which run without it
	all     map[int]*guest
	pools   map[string]string // id -> comment
}

func (s *guests) routes() []route {
	return []route{
		{"GET", "cluster/nextid", s.nextID},
		{"GET", "nodes/{node}/qemu", s.list},
		{"POST", "nodes/{node}/qemu", s.create},
		{"GET", "nodes/{node}/lxc/{vmid}/config", s.showContainer},
		{"GET", guestPath + "/config", s.on("VM.Audit", showConfig)},
		{"PUT", guestPath + "/config", s.on("VM.Config.Options", s.update)},
		{"POST", guestPath + "/config", s.on("VM.Config.Options", s.updateTask)},
		{"PUT", guestPath + "/resize", s.on("VM.Config.Disk", s.resize)},
		{"PUT", guestPath + "/cloudinit", s.on("VM.Config.Cloudinit", regenerate)},
		{"GET", guestPath + "/snapshot", s.on("VM.Audit", snapshots)},
		{"POST", guestPath + "/agent/ping", s.on("VM.GuestAgent.Audit", agentPing)},
		{"GET", guestPath + "/agent/network-get-interfaces", s.on("VM.GuestAgent.Audit", agentInterfaces)},
	}
}

const guestPath = "nodes/{node}/qemu/{vmid}"

// on is a handler for a call about one guest. It checks, in the order of a real
// node, first the privilege and then whether the guest exists.
func (s *guests) on(privilege string, handle func(*call, *guest) (any, error)) handler {
	return func(c *call) (any, error) {
		if c.get("skiplock") != "" {
			return nil, rootOnly()
		}
		g, err := s.find(c, "qemu", privilege)
		if err != nil {
			return nil, err
		}
		return handle(c, g)
	}
}

func (s *guests) find(c *call, kind, privilege string) (*guest, error) {
	id := c.vmid()
	g := s.all[id]
	if (g == nil && s.config.Pool != "") || (g != nil && !s.visible(g)) {
		return nil, forbidden(fmt.Sprintf("/vms/%d", id), privilege)
	}
	if g == nil || g.Node != c.vars["node"] || g.Kind != kind {
		return nil, missing(c.vars["node"], kind, id)
	}
	return g, nil
}

// visible reports whether the caller has privileges on a guest.
func (s *guests) visible(g *guest) bool {
	return !g.Hidden && (s.config.Pool == "" || g.Pool == s.config.Pool)
}

// rows lists the guests by id; row returns nil for those that the list leaves out.
func (s *guests) rows(row func(*guest) map[string]any) []any {
	rows := []any{}
	for _, id := range sortedKeys(s.all) {
		if r := row(s.all[id]); r != nil {
			rows = append(rows, r)
		}
	}
	return rows
}

func (s *guests) add(v VM) {
	g := guest(v)
	g.Node, g.Kind, g.Config = cmp.Or(v.Node, s.config.Nodes[0]), cmp.Or(v.Kind, "qemu"), map[string]string{}
	maps.Copy(g.Config, v.Config)
	set := func(key, value string, on bool) {
		if on {
			g.Config[key] = value
		}
	}
	set("name", v.Name, v.Name != "")
	set("lock", v.Lock, v.Lock != "")
	set("tags", strings.Join(v.Tags, ";"), len(v.Tags) > 0)
	set("protection", "1", v.Protection)
	set("template", "1", v.Template)
	if g.Running && g.Started.IsZero() {
		g.Started = time.Now()
	}
	s.all[v.ID] = &g
	if v.Pool != "" {
		s.pools[v.Pool] = ""
	}
	for _, volume := range g.ownVolumes() {
		d := Disk{Volume: volume, Owner: g.ID, Size: driveSize(g.Config, volume), Format: "raw",
			Content: "images"}
		s.storage.add(g.Node, &d)
	}
}

// nextID knows every guest, visible or not, containers included: only this call
// shows whether an id is in use.
func (s *guests) nextID(c *call) (any, error) {
	want := c.get("vmid")
	if want == "" {
		id := 100
		for s.all[id] != nil {
			id++
		}
		return strconv.Itoa(id), nil
	}
	id, err := strconv.Atoi(want)
	switch {
	case err != nil || id < 100:
		return nil, badParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
	case s.all[id] != nil:
		return nil, badParameter("vmid", fmt.Sprintf("VM %d already exists", id))
	}
	return want, nil
}

func (s *guests) list(c *call) (any, error) {
	return s.rows(func(g *guest) map[string]any {
		if g.Kind != "qemu" || g.Node != c.vars["node"] || !s.visible(g) {
			return nil
		}
		return g.row()
	}), nil
}

func (s *guests) showContainer(c *call) (any, error) {
	g, err := s.find(c, "lxc", "VM.Audit")
	if err != nil {
		return nil, err
	}
	return showConfig(c, g)
}

func showConfig(_ *call, g *guest) (any, error) { return g.show(), nil }

// regenerate writes the cloud-init drive again, without a visible effect.
func regenerate(*call, *guest) (any, error) { return nil, nil }

func snapshots(_ *call, g *guest) (any, error) {
	return []any{map[string]any{
		"name": "current", "description": "You are here!", "digest": g.digest(), "running": number(g.Running),
	}}, nil
}

// agent reports whether the configuration enables the guest agent.
func (g *guest) agent() bool {
	return parseProperties(g.Config["agent"], "enabled").get("enabled") == "1"
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

// agentInterfaces reports the address of ipconfig0 on the first card.
func agentInterfaces(c *call, g *guest) (any, error) {
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

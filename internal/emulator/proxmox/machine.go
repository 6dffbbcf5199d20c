package proxmox

import (
	"cmp"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VM is a guest as others see it: what AddVM makes and what hooks and VMs show.
type VM struct {
	ID      int
	Name    string
	Node    string // the first node, if empty
	Kind    string // qemu or lxc; qemu, if empty
	Pool    string
	Tags    []string
	Running bool
	Hidden  bool // exists, but no caller has VM.Audit on it
	HA      bool // managed by the high-availability stack
	// Replicated says that a replication job exists for it.
	Replicated bool
	Lock       string // create, backup, …
	Protection bool
	Template   bool
	// Config holds the raw options as the API stores them. AddVM lets the
	// fields above win over it.
	Config map[string]string
	// Address and Gateway come from ipconfig0; both are zero without one.
	Address netip.Prefix
	Gateway netip.Addr
	// Image is the file name that the first imported disk came from, ImageURL
	// where the node had got that file.
	Image, ImageURL string
	Started         time.Time
}

// machine is a guest as the server keeps it. Name, tags, lock, protection and
// template live in options, as they do in a real configuration file.
type machine struct {
	id             int
	node, kind     string
	pool           string
	options        map[string]string
	running        bool
	started        time.Time
	hidden, ha     bool
	replicated     bool
	image, fromURL string
}

func (m *machine) name() string { return cmp.Or(m.options["name"], "VM "+strconv.Itoa(m.id)) }

func (m *machine) status() string {
	if m.running {
		return "running"
	}
	return "stopped"
}

func (m *machine) view() VM {
	v := VM{
		ID: m.id, Name: m.options["name"], Node: m.node, Kind: m.kind, Pool: m.pool, Running: m.running, Hidden: m.hidden, HA: m.ha,
		Replicated: m.replicated, Lock: m.options["lock"], Protection: m.options["protection"] == "1", Template: m.options["template"] == "1",
		Config: maps.Clone(m.options), Image: m.image, ImageURL: m.fromURL, Started: m.started,
	}
	if tags := m.options["tags"]; tags != "" {
		v.Tags = strings.Split(tags, ";")
	}
	for _, p := range parseProperties(m.options["ipconfig0"], "") {
		switch p.key { // dhcp is no address: both stay zero
		case "ip":
			v.Address, _ = netip.ParsePrefix(p.value)
		case "gw":
			v.Gateway, _ = netip.ParseAddr(p.value)
		}
	}
	return v
}

// AddVM puts a guest into the datacenter that nobody asked the API for. Disks
// that its Config names come into being with it.
func (s *Server) AddVM(v VM) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &machine{
		id: v.ID, node: cmp.Or(v.Node, s.config.Nodes[0]), kind: cmp.Or(v.Kind, "qemu"), pool: v.Pool, running: v.Running,
		hidden: v.Hidden, ha: v.HA, replicated: v.Replicated, options: map[string]string{}, image: v.Image, fromURL: v.ImageURL,
	}
	maps.Copy(m.options, v.Config)
	for key, value := range map[string]string{"name": v.Name, "lock": v.Lock, "tags": strings.Join(v.Tags, ";")} {
		if value != "" {
			m.options[key] = value
		}
	}
	for key, on := range map[string]bool{"protection": v.Protection, "template": v.Template} {
		if on {
			m.options[key] = "1"
		}
	}
	if m.started = v.Started; m.running && m.started.IsZero() {
		m.started = time.Now()
	}
	s.machines[v.ID] = m
	if v.Pool != "" {
		s.pools[v.Pool] = ""
	}
	for _, volume := range m.ownVolumes() {
		s.addVolume(m.node, &Disk{Volume: volume, Owner: m.id, Size: driveSize(m.options, volume), Format: "raw", Content: "images"})
	}
}

// SetLock locks a guest (backup, migrate, …) or, with "", unlocks it.
func (s *Server) SetLock(id int, lock string) { s.setOption(id, "lock", lock) }

// SetProtection protects a guest from being removed, or no longer.
func (s *Server) SetProtection(id int, on bool) {
	value := ""
	if on {
		value = "1"
	}
	s.setOption(id, "protection", value)
}

func (s *Server) setOption(id int, key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machines[id]; m != nil {
		delete(m.options, key)
		if value != "" {
			m.options[key] = value
		}
	}
}

// PowerOff stops a guest as a power cut would; no task and no hook tells of it.
func (s *Server) PowerOff(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machines[id]; m != nil {
		m.running = false
	}
}

// RemoveVM makes a guest disappear, disks and all, as if somebody had done it by hand.
func (s *Server) RemoveVM(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machines[id]; m != nil {
		s.free(m.node, m.ownVolumes()...)
		delete(s.machines, id)
	}
}

// VMs lists every guest, hidden ones too, by id.
func (s *Server) VMs() []VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]VM, 0, len(s.machines))
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		all = append(all, s.machines[id].view())
	}
	return all
}

// ownVolumes are the volumes that go when the guest goes: its drives, attached
// or not, but not a CD image that somebody else may use.
func (m *machine) ownVolumes() []string {
	var own []string
	for _, key := range slices.Sorted(maps.Keys(m.options)) {
		if !isDrive(key) && !strings.HasPrefix(key, "unused") {
			continue
		}
		volume, _, _ := strings.Cut(m.options[key], ",")
		if ownerOf(volume) == m.id {
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

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// Use is what a machine uses of its node, besides processors and memory.
type Use struct {
	Machine, Node     string
	Storages, Bridges []string
	PCI, USB          []string // resource mappings
	Image             string   // a volume that its disk is copied from; empty if castle has it downloaded
	Template          string   // node/id of what it is cloned from; empty if it is none
	HA                bool     // it is highly available
	Leased            bool     // its guest agent tells its address
}

// UsesOf returns what the machines of a preflight with these values use of their nodes, by key.
func UsesOf(v gate.Values) (map[string]Use, error) {
	var storages, bridges, pci, usb map[string][]string
	nodes, images, templates := map[string]string{}, map[string]string{}, map[string]string{}
	available, leased, all := map[string]bool{}, map[string]bool{}, map[string]Use{}
	err := errors.Join(v.Decode("storages", &storages), v.Decode("bridges", &bridges), v.Decode("pci", &pci),
		v.Decode("usb", &usb), v.Decode("images", &images), v.Decode("node_names", &nodes),
		v.Decode("ha", &available), v.Decode("leased", &leased), v.Decode("templates", &templates))
	for key := range v["vm_ids"].AsValueMap() {
		all[key] = Use{Machine: key, Node: cmp.Or(nodes[key], v.String("node_name")),
			Storages: storages[key], Bridges: bridges[key], PCI: pci[key], USB: usb[key], Image: images[key],
			HA: available[key], Leased: leased[key], Template: templates[key]}
	}
	return all, err
}

// Problems lists what machines are to use and cannot, each once, with the machines in order.
func (h Hosts) Problems(ctx context.Context, uses []Use) (all []Problem, err error) {
	wanted := map[string]int{} // PCI devices, by node and mapping
	for _, u := range uses {
		for _, name := range u.PCI {
			wanted[u.Node+"\n"+name]++
		}
	}
	checked := map[string]int{} // by node and name: the position of the problem, or -1
	for _, u := range uses {
		for _, one := range u.parts(h, wanted) {
			key := u.Node + "\n" + one.name
			at, known := checked[key]
			if !known {
				p, err := one.check(ctx)
				if err != nil {
					return nil, err
				}
				if at = -1; p.What != "" {
					at, all = len(all), append(all, p)
				}
				checked[key] = at
			}
			if at >= 0 {
				all[at].What = join(all[at].What, u.Machine)
			}
		}
	}
	return all, nil
}

// join adds a machine to those that a problem concerns.
func join(what, machine string) string {
	switch {
	case strings.HasSuffix(what, " "+machine):
		return what
	case strings.Contains(what, "; needed by "):
		return what + ", " + machine
	}
	return what + "; needed by " + machine
}

// part is one thing that a machine uses.
type part struct {
	name  string
	check func(context.Context) (Problem, error)
}

func (u Use) parts(h Hosts, wanted map[string]int) (all []part) {
	add := func(kind string, names []string, check func(ctx context.Context, name string) (Problem, error)) {
		for _, name := range names {
			all = append(all, part{kind + " " + name, func(ctx context.Context) (Problem, error) {
				return check(ctx, name)
			}})
		}
	}
	add("storage", u.Storages, func(ctx context.Context, name string) (p Problem, err error) {
		p, _, err = h.StorageProblem(ctx, u.Node, name, "images")
		return p, err
	})
	if u.HA {
		add("availability", u.Storages, func(ctx context.Context, name string) (Problem, error) {
			return h.localProblem(ctx, u.Node, name)
		})
	}
	add("bridge", u.Bridges, func(ctx context.Context, name string) (Problem, error) {
		return h.bridgeProblem(ctx, u.Node, name)
	})
	add("pci", u.PCI, func(ctx context.Context, name string) (Problem, error) {
		return h.mappingProblem(ctx, u.Node, "pci", name, wanted[u.Node+"\n"+name])
	})
	add("usb", u.USB, func(ctx context.Context, name string) (Problem, error) {
		return h.mappingProblem(ctx, u.Node, "usb", name, 1)
	})
	if u.Image != "" {
		add("image", []string{u.Image}, func(ctx context.Context, name string) (Problem, error) {
			return h.imageProblem(ctx, u.Node, name)
		})
	}
	if u.Template != "" {
		add("template", []string{u.Template}, func(ctx context.Context, name string) (Problem, error) {
			return h.cloneProblem(ctx, u.Node, name)
		})
	}
	slices.SortStableFunc(all, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return all
}

// localProblem is that of a highly available machine with a disk on a storage that its node has alone. A pool
// of ZFS may be replicated to others. https://pve.proxmox.com/wiki/High_Availability, Requirements.
func (h Hosts) localProblem(ctx context.Context, node, name string) (p Problem, err error) {
	all, err := h.Storages(ctx, node)
	local := func(s Storage) bool { return s.ID == name && s.Shared == 0 && s.Type != "zfspool" }
	if slices.ContainsFunc(all, local) {
		p = Problem{fmt.Sprintf("storage %s is not shared, and high availability moves a machine to another "+
			"node without its disk", name), "choose a shared storage, or set ha = { enabled = false }"}
	}
	return p, err
}

// bridge is one of a node, or a virtual network of its software-defined network.
type bridge struct {
	Name string `json:"iface"`
}

func (b bridge) Key() string { return b.Name }

func (h Hosts) bridgeProblem(ctx context.Context, node, name string) (p Problem, err error) {
	all, err := session.List[bridge](ctx, h.Session, session.Path("nodes/%s/network?type=any_bridge", node))
	if err != nil || slices.Contains(all, bridge{name}) {
		return p, err
	}
	return Problem{
		fmt.Sprintf("bridge %s on node %s does not exist, or this token may not see it", name, node),
		"choose another bridge, or give the token SDN.Use on /sdn/zones/localnetwork/" + name}, nil
}

// mapping is a resource mapping with a device of each node: "node=pve,path=0000:01:00.0,…".
type mapping struct {
	ID  string   `json:"id"`
	Map []string `json:"map"`
}

func (m mapping) Key() string { return m.ID }

// mappingProblem is that of a mapping from which machines on a node want so many devices.
func (h Hosts) mappingProblem(ctx context.Context, node, kind, name string, wanted int) (p Problem,
	err error) {
	all, err := session.List[mapping](ctx, h.Session, "cluster/mapping/"+kind)
	if err != nil {
		return p, err
	}
	i := slices.IndexFunc(all, func(m mapping) bool { return m.ID == name })
	what := strings.ToUpper(kind) + " mapping " + name
	if i < 0 {
		return Problem{what + " does not exist, or this token may not see it",
			fmt.Sprintf("create it in Datacenter > Resource Mappings, or give the token Mapping.Use on "+
				"/mapping/%s/%s", kind, name)}, nil
	}
	here := xslices.Filter(all[i].Map, func(device string) bool {
		return slices.Contains(strings.Split(device, ","), "node="+node)
	})
	switch fix := "add one in Datacenter > Resource Mappings, or give a machine another node"; {
	case len(here) == 0:
		return Problem{what + " has no device on node " + node, fix}, nil
	case len(here) < wanted:
		return Problem{fmt.Sprintf("%s has too few devices on node %s: %d, and the machines use %d", what,
			node, len(here), wanted), fix}, nil
	}
	return p, nil
}

// volume is one of a storage.
type volume struct {
	ID string `json:"volid"`
}

func (v volume) Key() string { return v.ID }

func (h Hosts) imageProblem(ctx context.Context, node, name string) (p Problem, err error) {
	if id := values.OwnerOf(name); id != 0 {
		return h.templateProblem(ctx, id, name)
	}
	storage := values.StorageOf(name)
	if p, _, err = h.StorageProblem(ctx, node, storage, values.ContentOf(name)); err != nil || p.What != "" {
		return p, err
	}
	path := session.Path("nodes/%s/storage/%s/content", node, storage)
	all, err := session.List[volume](ctx, h.Session, path)
	if err != nil || slices.Contains(all, volume{name}) {
		return p, err
	}
	return Problem{
		fmt.Sprintf("image %s on node %s does not exist, or this token may not see it", name, node),
		"upload it, choose another one, or give the token Datastore.Audit on /storage/" + storage}, nil
}

// guest is a machine of the datacenter.
type guest struct {
	ID   int    `json:"vmid"`
	Node string `json:"node"`
}

func (g guest) Key() string { return fmt.Sprint(g.ID) }

// templateProblem reads the disks in a template's configuration: a token sees volumes that it may change.
func (h Hosts) templateProblem(ctx context.Context, id int, name string) (p Problem, err error) {
	fix := fmt.Sprintf("choose another image, or give the token VM.Audit and VM.Clone on /vms/%d", id)
	node, config, err := h.configOf(ctx, id)
	if err == nil && node == "" {
		return Problem{fmt.Sprintf("VM %d with the image %s does not exist, or this token may not see it", id,
			name), fix}, nil
	}
	for _, value := range config {
		if text, is := value.(string); is && strings.HasPrefix(text+",", name+",") {
			return p, err
		}
	}
	return Problem{fmt.Sprintf("VM %d has no disk %s", id, name), fix}, err
}

// configOf returns the node of a machine and its configuration; no node, if the token sees no such machine.
func (h Hosts) configOf(ctx context.Context, id int) (node string, config map[string]any, err error) {
	all, err := session.List[guest](ctx, h.Session, "cluster/resources?type=vm")
	i := slices.IndexFunc(all, func(g guest) bool { return g.ID == id })
	if err != nil || i < 0 {
		return "", nil, err
	}
	config, err = session.Get(ctx, h.Session, session.Path("nodes/%s/qemu/%d/config", all[i].Node, id),
		func(config map[string]any) string {
			if config["digest"] == nil {
				return "a configuration without a digest"
			}
			return ""
		})
	return all[i].Node, config, err
}

// cloneProblem is that of a template from which a machine on a node is cloned. Proxmox clones to another node
// only what is on shared storage; the provider would clone to the template's node, and migrate.
func (h Hosts) cloneProblem(ctx context.Context, node, template string) (p Problem, err error) {
	named, of, _ := strings.Cut(template, "/")
	id, err := strconv.Atoi(of)
	if err != nil {
		return p, err
	}
	home, config, err := h.configOf(ctx, id)
	disk, _ := config["scsi0"].(string)
	switch {
	case err != nil:
		return p, err
	case home == "":
		return Problem{fmt.Sprintf("template VM %d does not exist, or this token may not see it", id),
			fmt.Sprintf("choose another one, or give the token VM.Audit and VM.Clone on /vms/%d", id)}, nil
	case home != named:
		return Problem{fmt.Sprintf("template VM %d is on node %s, not on node %s", id, home, named),
			"set the template's node_name to " + home}, nil
	case config["template"] == nil || !values.On(fmt.Sprint(config["template"])):
		return Problem{fmt.Sprintf("VM %d on node %s is not a template", id, home),
			fmt.Sprintf("choose another one, or make it one: qm template %d", id)}, nil
	case disk == "":
		return Problem{fmt.Sprintf("template VM %d has no disk scsi0, from which the machine starts", id),
			"attach its disk with Talos as scsi0, or choose another one"}, nil
	case home == node:
		return p, nil
	}
	storage := values.StorageOf(disk)
	p, shared, err := h.StorageProblem(ctx, node, storage, "images")
	if p.What == "" && !shared {
		p = Problem{fmt.Sprintf("template VM %d is on node %s, and its storage %s is not shared with node %s",
			id, home, storage, node),
			"move the template's disk to shared storage, or name a template of " + node}
	}
	return p, err
}

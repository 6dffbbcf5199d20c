package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// rights are a token's privileges on a path. A value only tells whether the privilege is inherited.
type rights map[string]int

// rightsOn returns the token's rights on a path such as /storage/local.
func (c *Client) rightsOn(ctx context.Context, path string) (rights, error) {
	query := url.Values{"path": {path}}.Encode()
	all, err := get(ctx, c, "access/permissions?"+query, func(all map[string]rights) string {
		return textIf(all[path] == nil, "no privileges on "+path+", not even an empty list")
	})
	return all[path], err
}

func (r rights) missing(want ...string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(privilege string) bool {
		_, ok := r[privilege]
		return ok
	})
}

func (r rights) include(privilege string) bool { return len(r.missing(privilege)) == 0 }

// Footprint is the part of a datacenter that a cluster uses.
type Footprint struct {
	Pool     string // of its machines; empty if they are in none
	Machines []int
	Nodes    []string
	Images   []string // the storages of its images
	Disks    []string // the storages of its disks
	Bridges  []string
	Devices  []string // mapped ones: pci/gpu
	Sources  []string // volumes that its disks are copied from
	Cloned   []string // templates that machines are cloned from: pve1/9000
	HA       bool     // machines are highly available
	Leased   bool     // guest agents tell the addresses of machines
}

// Uses adds what machines use of their nodes to the footprint.
func (f *Footprint) Uses(all []host.Use) {
	add := func(to *[]string, prefix string, names ...string) {
		for _, name := range names {
			if name = prefix + name; !slices.Contains(*to, name) {
				*to = append(*to, name)
			}
		}
	}
	for _, u := range all {
		add(&f.Disks, "", u.Storages...)
		add(&f.Bridges, "", u.Bridges...)
		add(&f.Devices, "pci/", u.PCI...)
		add(&f.Devices, "usb/", u.USB...)
		if u.Template != "" {
			add(&f.Cloned, "", u.Template)
		}
		f.HA, f.Leased = f.HA || u.HA, f.Leased || u.Leased
		if u.Image != "" {
			add(&f.Sources, "", u.Image)
		}
	}
}

// right is what a token needs on a path. The role has these privileges in Commands.
type right struct {
	path, role string
	all        []string
	or         []string // as good as all of them; Commands prefers all
}

// machineRights are those that a create and a destroy need on a machine, besides VM.Audit.
var machineRights = []string{"VM.Allocate", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
	"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.PowerMgmt"}

func (f Footprint) rights() (all []right) {
	require := func(path, role string, privileges ...string) {
		all = append(all, right{path: path, role: role, all: privileges})
	}
	if f.Pool == "" {
		for _, id := range f.Machines {
			require(fmt.Sprintf("/vms/%d", id), "", append([]string{"VM.Audit"}, machineRights...)...)
		}
	} else {
		// The provider reads the pool of each machine. castle reads a machine that is not in the pool: one in
		// creation, or another that has a machine's id.
		require("/pool/"+f.Pool, "CastleMachines", append([]string{"Pool.Audit"}, machineRights...)...)
		require("/vms", "CastleLook", "VM.Audit")
	}
	for _, s := range f.Disks {
		require("/storage/"+s, "CastleDisks", "Datastore.AllocateSpace", "Datastore.Audit")
	}
	for _, s := range f.Images { // Allocate deletes the image with the cluster
		require("/storage/"+s, "CastleImages", "Datastore.Allocate", "Datastore.AllocateTemplate",
			"Datastore.Audit")
	}
	for _, node := range f.Nodes { // either lets a node fetch an image from a URL
		all = append(all, right{path: "/nodes/" + node, role: "CastleNode",
			all: []string{"Sys.AccessNetwork"}, or: []string{"Sys.Audit", "Sys.Modify"}})
	}
	for _, bridge := range f.Bridges {
		require("/sdn/zones/localnetwork/"+bridge, "CastleNetwork", "SDN.Use")
	}
	for _, device := range f.Devices {
		require("/mapping/"+device, "CastleDevices", "Mapping.Use")
	}
	if f.HA { // the stack knows no right on a single machine
		require("/", "CastleHA", "Sys.Audit", "Sys.Console")
	}
	if f.Leased { // the right has another name before Proxmox 9
		all = append(all, right{cmp.Or(textIf(f.Pool != "", "/pool/"+f.Pool), "/vms"), "CastleAgents",
			[]string{"VM.GuestAgent.Audit"}, []string{"VM.Monitor"}})
	}
	if len(f.Cloned) > 0 && f.Pool != "" { // a clone gets its cloud-init drive when it exists
		require("/pool/"+f.Pool, "CastleClones", "VM.Config.CDROM")
	}
	for _, template := range f.Cloned {
		require("/vms/"+path.Base(template), "CastleTemplates", "VM.Audit", "VM.Clone")
	}
	for _, volume := range f.Sources {
		if of := values.OwnerOf(volume); of != 0 { // a template's disk
			require(fmt.Sprintf("/vms/%d", of), "CastleTemplates", "VM.Audit", "VM.Clone")
		} else {
			require("/storage/"+values.StorageOf(volume), "CastleSources", "Datastore.Audit")
		}
	}
	return all
}

// Commands are the commands of pveum that make a token, user@realm!name, with a footprint's rights alone.
func (f Footprint) Commands(token string) []string {
	user, name, _ := strings.Cut(token, "!")
	commands := []string{"pveum pool add " + f.Pool}
	var lists []string
	for _, r := range f.rights() {
		if role := fmt.Sprintf("pveum role add %s --privs %s", r.role,
			strings.Join(r.all, ",")); !slices.Contains(commands, role) {
			commands = append(commands, role)
		}
		acl := fmt.Sprintf("pveum acl modify %s --users %s --tokens '%s' --roles %s", r.path, user, token,
			r.role)
		lists = append(lists, acl+textIf(r.path == "/", " --propagate 0"))
	}
	commands = append(commands, "pveum user add "+user,
		fmt.Sprintf("pveum user token add %s %s --privsep 1", user, name))
	return append(commands, lists...)
}

// Missing lists the privileges that the token lacks to create and destroy the cluster.
func (f Footprint) Missing(ctx context.Context, c *Client) (lacks []string, err error) {
	for _, r := range f.rights() {
		has, err := c.rightsOn(ctx, r.path)
		if err != nil {
			return nil, err
		}
		missing := has.missing(r.all...)
		if len(missing) == 0 || r.or != nil && len(has.missing(r.or...)) == 0 {
			continue
		}
		text := strings.Join(missing, ", ")
		if r.or != nil {
			text += " or " + strings.Join(r.or, " and ")
		}
		lacks = append(lacks, text+" on "+r.path)
	}
	return lacks, nil
}

// dangerous are the privileges, besides VM.Config.*, that change or delete machines or their disks.
var dangerous = []string{"Datastore.Allocate", "Permissions.Modify", "VM.Allocate", "VM.PowerMgmt"}

// Outside lists the rights with which the token may change or delete machines outside of the pool, or their
// disks, such as "VM.Allocate, VM.Config.* on /vms". Without a pool every machine is outside.
func (f Footprint) Outside(ctx context.Context, c *Client) (outside []string, err error) {
	all, err := get(ctx, c, "access/permissions", func(all map[string]rights) string {
		return textIf(all == nil, "no privileges, not even an empty list")
	})
	if err != nil {
		return nil, err
	}
	harmless, err := f.inside(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, path := range sortedKeys(all) {
		var names []string
		for _, p := range sortedKeys(all[path]) {
			name := p
			if strings.HasPrefix(p, "VM.Config.") {
				name = "VM.Config.*"
			} else if !slices.Contains(dangerous, p) {
				continue
			}
			if inherited := path != "/" && all["/"].include(p); !inherited && !harmless(path, p) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			outside = append(outside, strings.Join(slices.Compact(names), ", ")+" on "+path)
		}
	}
	return outside, nil
}

// advice says that the token may change machines outside of the pool, or that castle cannot tell.
func (c *vmCheck) advice(ctx context.Context) string {
	f := Footprint{Pool: c.pool, Machines: slices.Collect(maps.Values(c.ids))}
	outside, err := f.Outside(ctx, c.client)
	switch {
	case err != nil:
		return fmt.Sprintf("cannot tell whether the API token is limited to the cluster's machines: %v", err)
	case len(outside) > 0:
		return fmt.Sprintf("the API token may change or delete machines outside of the cluster's pool: %s; "+
			"castle doctor prints the commands that limit it", strings.Join(outside, "; "))
	}
	return ""
}

// inside returns whether a dangerous privilege on a path harms no machine outside of the pool.
func (f Footprint) inside(ctx context.Context, c *Client) (func(path, privilege string) bool, error) {
	guests, err := c.Guests(ctx)
	if err != nil {
		return nil, err
	}
	nameless := func(s host.Storage) bool { return s.ID == "" }
	storages, err := get(ctx, c, "cluster/resources?type=storage", func(all []host.Storage) string {
		return textIf(slices.ContainsFunc(all, nameless), "a storage without an id")
	})
	if err != nil {
		return nil, err
	}
	pooled, diskless := map[string]bool{}, map[string]bool{}
	for _, g := range guests {
		pooled[strconv.Itoa(g.ID)] = f.Pool != "" && g.Pool == f.Pool
	}
	for _, s := range storages {
		diskless[s.ID] = s.Content != "" && !s.Holds("images")
	}
	return func(path, privilege string) bool {
		kind, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		switch kind {
		case "":
			return false
		case "storage":
			return privilege != "Datastore.Allocate" || diskless[name]
		case "pool":
			return f.Pool != "" && strings.HasPrefix(name+"/", f.Pool+"/")
		case "vms":
			id, _ := strconv.Atoi(name) //nolint:errcheck // 0 is no machine's id
			// Since 9.2 a new machine with tags needs this right before it is in its pool.
			return pooled[name] || privilege == "VM.Config.Options" && slices.Contains(f.Machines, id)
		}
		return true
	}, nil
}

// Excess lists privileges on the whole datacenter that the cluster does not need: keys to everything.
func (f Footprint) Excess(ctx context.Context, c *Client) ([]string, error) {
	has, err := c.rightsOn(ctx, "/")
	powerful := []string{"Permissions.Modify", "Realm.Allocate", "Realm.AllocateUser", "Sys.Console",
		"Sys.PowerMgmt", "User.Modify"}
	return slices.DeleteFunc(powerful, func(p string) bool {
		return !has.include(p) || f.HA && p == "Sys.Console"
	}), err
}

// seesDisks reports whether a storage lists all disks of a guest that is gone. A privilege on the guest
// itself may have gone with it.
func seesDisks(ctx context.Context, c *Client, storage string, guest int) (bool, error) {
	has, err := c.rightsOn(ctx, "/storage/"+storage)
	if err != nil || has.include("Datastore.Allocate") || !has.include("Datastore.Audit") {
		return has.include("Datastore.Allocate"), err
	}
	has, err = c.rightsOn(ctx, fmt.Sprintf("/vms/%d", guest))
	return has.include("VM.Config.Disk"), err
}

// freed reports whether the token's own last task on a guest has deleted it with all its disks. A token that
// is limited to a pool cannot see the disks: the guest has left the pool.
func freed(ctx context.Context, c *Client, node string, guest int) (bool, error) {
	tasks, err := list[task](ctx, c, session.Path("nodes/%s/tasks?source=all&vmid=%d", node, guest))
	for _, t := range tasks { // the newest first
		if t.Kind == "qmcreate" || t.Kind == "qmdestroy" {
			return t.Kind == "qmdestroy" && t.Status == "OK", err
		}
	}
	return false, err
}

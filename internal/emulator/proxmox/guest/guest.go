package guest

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
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

// Guest is a VM as the server keeps it. As in a real configuration file, only Config holds name, tags, lock,
// protection, template and address.
type Guest VM

// flags are the values of an option that AddVM and others switch on or off; an empty one removes it.
var flags = map[bool]string{true: "1"}

func (g *Guest) name() string { return cmp.Or(g.Config["name"], "VM "+strconv.Itoa(g.ID)) }

// Path names a guest in lists: qemu/421.
func (g *Guest) Path() string { return g.Kind + "/" + strconv.Itoa(g.ID) }

func (g *Guest) status() string {
	if g.Running {
		return "running"
	}
	return "stopped"
}

// Set stores an option; an empty value removes it.
func (g *Guest) Set(key, value string) {
	g.Config[key] = value
	if value == "" {
		delete(g.Config, key)
	}
}

// locked is the error for a guest with a lock; nil without one.
func (g *Guest) locked() error {
	if lock := g.Config["lock"]; lock != "" {
		return fmt.Errorf("VM is locked (%s)", lock)
	}
	return nil
}

// View is a guest as others see it.
func (g *Guest) View() VM {
	v := VM(*g)
	v.Config, v.Pending = maps.Clone(g.Config), maps.Clone(g.Pending)
	v.Name, v.Lock = g.Config["name"], g.Config["lock"]
	v.Protection, v.Template = g.Config["protection"] == "1", g.Config["template"] == "1"
	if tags := g.Config["tags"]; tags != "" {
		v.Tags = strings.Split(tags, ";")
	}
	network := option.Parse(g.Config["ipconfig0"], "")
	v.Address, _ = netip.ParsePrefix(network["ip"]) // dhcp is no address: both stay zero
	v.Gateway, _ = netip.ParseAddr(network["gw"])
	if v.Second, _ = netip.ParsePrefix(network["ip6"]); !v.Address.IsValid() {
		v.Address, v.Second = v.Second, netip.Prefix{}
		v.Gateway, _ = netip.ParseAddr(network["gw6"])
	}
	return v
}

// Row is a guest in a list.
func (g *Guest) Row() map[string]any {
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
func (g *Guest) ownVolumes() map[string]int64 {
	own := map[string]int64{}
	for _, s := range g.snapshots {
		if s.vmstate != "" {
			own[s.vmstate] = 0
		}
	}
	for _, options := range []map[string]string{g.Config, g.Pending} {
		for key, value := range options {
			volume, rest, _ := strings.Cut(value, ",")
			if (option.IsDrive(key) || option.IsUnused(key)) && storage.OwnerOf(volume) == g.ID {
				own[volume] = option.DriveSize(rest)
			}
		}
	}
	return own
}

// show is the configuration in JSON: integers and booleans are numbers, everything else is a string.
func (g *Guest) show() map[string]any {
	out := map[string]any{"digest": g.digest()}
	for key, value := range g.Config {
		out[key] = value
		if kind := option.KindOf(key); kind == option.Integer || kind == option.Boolean {
			if n, err := strconv.Atoi(value); err == nil {
				out[key] = n
			}
		}
	}
	if _, ok := out["cipassword"]; ok {
		out["cipassword"] = "**********"
	}
	return out
}

func (g *Guest) digest() string {
	sum := sha1.New()
	for _, key := range sortedKeys(g.Config) {
		fmt.Fprintf(sum, "%s: %s\n", key, g.Config[key])
	}
	for _, key := range sortedKeys(g.Pending) {
		fmt.Fprintf(sum, "[PENDING] %s: %s\n", key, g.Pending[key])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// tell calls a hook, if it is set, with a guest as it is now.
func (g *Guest) tell(t *rpc.Task, hook func(VM)) {
	if v := g.View(); hook != nil {
		t.Tell(func() { hook(v) })
	}
}

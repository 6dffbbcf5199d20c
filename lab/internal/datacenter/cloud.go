package datacenter

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/ephemeral-castle/castle/internal/emulator/hcloud"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

// CloudToken is the name of the secret that holds the token of Hetzner Cloud.
const CloudToken = "HCLOUD_TOKEN"

// Cloud is what a configuration expects of its project of Hetzner Cloud.
type Cloud struct {
	Endpoint string
	Talos    string // the release of the snapshot that somebody has made
	Token    string // empty for one that only Infisical knows
}

// CloudAddresses are the public ones of its load balancers, and of all else in it.
func CloudAddresses() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/32")}
}

// cloud is the project, with the machines of its servers. A server is on the lab's network while it runs and
// has a private address.
type cloud struct {
	d       *Datacenter
	server  *hcloud.Server
	token   string
	mu      sync.Mutex
	on, all map[int64]proxmox.VM         // as the rest of the lab knows machines
	had     map[string]bool              // the addresses that its machines have, or had
	ports   atomic.Pointer[map[int]bool] // of nodes: those that lead to a ready endpoint
}

// actionDurations returns the durations of actions in a location of Hetzner Cloud.
func actionDurations(speed float64) map[string]time.Duration {
	seconds := map[string]float64{
		"create_server": 6, "start_server": 3, "stop_server": 2, "shutdown_server": 1, "delete_server": 2,
		"attach_to_network": 2, "detach_from_network": 2, "create_load_balancer": 3, "create_image": 60,
	}
	all := map[string]time.Duration{}
	for command, s := range seconds {
		all[command] = scaled(time.Duration(s*float64(time.Second)), speed)
	}
	return all
}

func (d *Datacenter) found() *cloud {
	x := &cloud{d: d, token: cmp.Or(d.config.Cloud.Token, d.folders.secrets[CloudToken]),
		on: map[int64]proxmox.VM{}, all: map[int64]proxmox.VM{}, had: map[string]bool{}}
	x.server = hcloud.New(hcloud.Config{Token: x.token, Duration: scaled(time.Second, d.config.Speed),
		Durations: actionDurations(d.config.Speed),
		OnStart:   x.changed, OnNetwork: x.changed, OnStop: x.stopped, OnDelete: x.deleted,
		OnShutdown: x.pressed, Listens: x.listens})
	for _, architecture := range []string{"x86", "arm"} {
		x.server.AddImage(schema.Image{Description: "Talos " + d.config.Cloud.Talos,
			Architecture: architecture,
			Labels:       map[string]string{"os": "talos", "version": d.config.Cloud.Talos}})
	}
	x.disturb()
	return x
}

// disturb adds the faults of Hetzner Cloud.
func (x *cloud) disturb() {
	log, faults := x.d.log, x.d.config.Faults
	add := func(name string, is bool, lasts time.Duration, f hcloud.Fault) {
		if !is {
			return
		}
		held, began := make(chan struct{}), sync.Once{}
		f.Before = func() {
			began.Do(func() {
				log.begins(name)
				time.AfterFunc(lasts, func() {
					log.ends(name)
					close(held)
				})
			})
		}
		if f.Status == 0 && f.Action == "" {
			f.Hold = held
		} else {
			f.Lasts = lasts
		}
		x.server.Fail(f)
	}
	timed := func(name string, f hcloud.Fault) {
		add(name, faults.Times[name] != 0, faults.Times[name], f)
	}
	timed("rate-limited", hcloud.Fault{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded",
		Message: "limit of 3600 requests per hour reached"})
	add("placement-full", faults.PlacementFull, 0, hcloud.Fault{Method: http.MethodPost, Path: "servers",
		Body: `"placement_group":`, Times: 1, Status: http.StatusUnprocessableEntity, Code: "placement_error",
		Message: "error during placement"})
	timed("action-slow", hcloud.Fault{Method: http.MethodPost, Path: "servers", Times: 1})
	add("action-fails", faults.ActionFails, 0, hcloud.Fault{Method: http.MethodPost, Path: "servers",
		Body: `"placement_group":`, Times: 1, Action: "action_failed"})
	timed("server-locked", hcloud.Fault{Method: http.MethodDelete, Path: "servers/*",
		Status: http.StatusLocked, Code: "locked", Message: "server is locked"})
}

// machineOf is a server as the rest of the lab knows machines. One without a private address is not
// reachable.
func machineOf(m hcloud.Machine) (vm proxmox.VM, reachable bool) {
	v := m.Server
	vm = proxmox.VM{ID: int(v.ID), Name: v.Name, Kind: "qemu", Node: v.Location.Name,
		Config: map[string]string{
			"cores": fmt.Sprint(v.ServerType.Cores), "memory": fmt.Sprint(int(v.ServerType.Memory) << 10)}}
	if v.Image != nil {
		vm.Image = "talos " + v.Image.Labels["version"]
	}
	if len(v.PrivateNet) == 0 {
		return vm, false
	}
	address, err := netip.ParseAddr(v.PrivateNet[0].IP)
	vm.Address = netip.PrefixFrom(address, 24)
	vm.Config["net0"] = "virtio=" + v.PrivateNet[0].MACAddress
	return vm, err == nil
}

// changed is a server that has started, or whose private network has changed.
func (x *cloud) changed(m hcloud.Machine) {
	vm, reachable := machineOf(m)
	reachable = reachable && m.Server.Status == "running"
	x.mu.Lock()
	was, on := x.on[m.Server.ID]
	if reachable {
		x.on[m.Server.ID], x.all[m.Server.ID] = vm, vm
		x.had[vm.Address.Addr().String()] = true
	} else {
		delete(x.on, m.Server.ID)
	}
	x.mu.Unlock()
	if on && reachable && was.Address == vm.Address {
		return
	}
	if on {
		x.d.stopped(was)
	}
	if reachable {
		x.d.started(vm)
	}
}

func (x *cloud) stopped(m hcloud.Machine) {
	x.mu.Lock()
	vm, on := x.on[m.Server.ID]
	delete(x.on, m.Server.ID)
	x.mu.Unlock()
	if on {
		x.d.stopped(vm)
	}
}

func (x *cloud) deleted(m hcloud.Machine) {
	x.mu.Lock()
	vm, was := x.all[m.Server.ID]
	delete(x.all, m.Server.ID)
	x.mu.Unlock()
	if was {
		x.d.destroyed(vm)
	}
}

func (x *cloud) pressed(m hcloud.Machine) {
	if vm, reachable := machineOf(m); reachable {
		x.d.pressed(vm)
	}
}

// switchedOff is a machine that has ended by itself.
func (x *cloud) switchedOff(vm proxmox.VM) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.on, int64(vm.ID))
	x.server.PowerOff(int64(vm.ID))
}

// leftovers lists what a destroy should have deleted.
func (x *cloud) leftovers() (all []string) {
	add := func(kind string, id int64, name string) {
		all = append(all, fmt.Sprintf("%s %d %q of Hetzner Cloud", kind, id, name))
	}
	for _, v := range x.server.Servers() {
		add("server", v.ID, v.Name)
	}
	for _, v := range x.server.Networks() {
		add("network", v.ID, v.Name)
	}
	for _, v := range x.server.LoadBalancers() {
		add("load balancer", v.ID, v.Name)
	}
	for _, v := range x.server.Firewalls() {
		add("firewall", v.ID, v.Name)
	}
	for _, v := range x.server.PlacementGroups() {
		add("placement group", v.ID, v.Name)
	}
	for _, v := range x.server.PrimaryIPs() {
		add("primary IP", v.ID, v.Name)
	}
	for _, v := range x.server.Volumes() {
		add("volume", v.ID, v.Name)
	}
	return all
}

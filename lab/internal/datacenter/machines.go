package datacenter

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// taskDurations returns the durations of Proxmox tasks on one small host with local storage.
func taskDurations(speed float64) map[string]time.Duration {
	seconds := map[string]float64{
		"download": 12, "qmcreate": 4, "qmstart": 2, "qmstop": 1, "qmshutdown": 8, "qmdestroy": 2,
		"resize": 1, "imgdel": 1, "qmreboot": 8, "qmconfig": 0.5, "qmigrate": 20, "vzdump": 20,
		"qmrestore": 20, "qmclone": 10,
	}
	all := map[string]time.Duration{}
	for kind, s := range seconds {
		all[kind] = scaled(time.Duration(s*float64(time.Second)), speed)
	}
	return all
}

// storages are those of a new host and of the configuration, which chooses one for each kind of content. One
// whose name begins with that of a network file system is shared by all hosts.
func storages(names []string) []proxmox.Storage {
	files := []string{"backup", "import", "iso", "snippets", "vztmpl"}
	everything := append([]string{"images"}, files...)
	local := proxmox.Storage{ID: "local", Type: "dir", Content: everything, Path: "/var/lib/vz"}
	if slices.Contains(names, "local-lvm") { // the installer then keeps disks off local
		local.Content = files
	}
	all := []proxmox.Storage{
		local, {ID: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}},
	}
	for _, n := range names {
		if n != "local" && n != "local-lvm" {
			st := proxmox.Storage{ID: n, Type: "dir", Content: everything, Path: "/mnt/pve/" + n}
			if strings.HasPrefix(n, "nfs") || strings.HasPrefix(n, "cephfs") {
				st.Type, st.Shared = "nfs", true
			}
			all = append(all, st)
		}
	}
	return all
}

// bridges are that of a new host and those of the configuration.
func bridges(names []string) []string {
	if slices.Contains(names, "vmbr0") {
		return names
	}
	return append([]string{"vmbr0"}, names...)
}

// mappings are the resource mappings of these names, pci/gpu, with a device on every host.
func mappings(names []string) (all []proxmox.Mapping) {
	for _, name := range names {
		kind, name, _ := strings.Cut(name, "/")
		all = append(all, proxmox.Mapping{Kind: kind, Name: name})
	}
	return all
}

// templateDisk is the name of a template's disk.
var templateDisk = regexp.MustCompile(`[:/]base-(\d+)-`)

// templateVolume is the disk of a template.
func (d *Datacenter) templateVolume(id string) string {
	for _, st := range storages(d.config.Hosts.Storages) {
		if st.Shared {
			return st.ID + ":" + id + "/base-" + id + "-disk-0.raw"
		}
	}
	return "local-lvm:base-" + id + "-disk-0"
}

// addSources adds the images that castle does not download, on every host.
func (d *Datacenter) addSources() {
	for _, template := range d.config.Hosts.Templates {
		node, id, _ := strings.Cut(template, "/")
		d.proxmox.AddVM(proxmox.VM{ID: int(number(id, 0)), Node: node, Name: "golden", Template: true,
			Config: map[string]string{"scsi0": d.templateVolume(id) + ",size=20G",
				"net0": "virtio=BC:24:11:00:00:90,bridge=vmbr0", "ostype": "l26"}})
	}
	for _, volume := range d.config.Hosts.Sources {
		if found := templateDisk.FindStringSubmatch(volume); found != nil {
			d.proxmox.AddVM(proxmox.VM{ID: int(number(found[1], 0)), Name: "golden", Template: true,
				Config: map[string]string{"scsi0": volume + ",size=8G"}})
			continue
		}
		for _, node := range d.config.Hosts.Nodes {
			d.proxmox.AddDisk(proxmox.Disk{Volume: volume, Node: node, Size: 2 << 30, Format: "qcow2",
				Content: "import"})
		}
	}
}

// imageRelease is the release of Talos in the address or the name of its image.
var imageRelease = regexp.MustCompile(`v\d+\.\d+\.\d+(-[a-z]+\.\d+)?`)

// started boots the VM's machine. A VM without an image has nothing to boot
// from, and one without an address cannot be found.
func (d *Datacenter) started(vm proxmox.VM) {
	address := vm.Address.Addr()
	if vm.Kind == "lxc" || vm.Image == "" || !address.IsValid() {
		return
	}
	if err := d.config.Proof.Allows(address); err != nil {
		d.log.say("vm %d %s: %v", vm.ID, vm.Name, err)
		return
	}
	if vlan, apart := d.config.Hosts.apart(vm); apart {
		d.log.say("vm %d %s: started in VLAN %d, where nobody reaches %s", vm.ID, vm.Name, vlan, address)
		return
	}
	addresses := d.kubeAt(address.String()).addresses
	former, on := addresses.occupy(vm)
	if on {
		d.log.say("vm %d %s: started, but VM %d has its address %s", vm.ID, vm.Name, former, address)
		return
	}
	if former != 0 {
		d.remove(address.String())
		addresses.occupy(vm)
	}
	if d.dead.is(address.String()) {
		d.log.say("vm %d %s: started, and its guest is dead", vm.ID, vm.Name)
		d.proxmox.SetDeaf(vm.ID, true)
		return
	}
	d.log.say("vm %d %s: started; Talos boots at %s", vm.ID, vm.Name, address)
	var further []netip.Prefix
	if vm.Second.IsValid() {
		further = append(further, vm.Second)
	}
	if err := d.fleet.Boot(talos.Machine{Address: address.String(), Further: further, Name: vm.Name,
		Disks: d.disks(vm), Memory: uint64(number(vm.Config["memory"], 4096)) << 20, Cards: cards(vm),
		Version: imageRelease.FindString(vm.ImageURL + " " + vm.Image)}); err != nil {
		d.log.say("vm %d %s: %v", vm.ID, vm.Name, err)
	}
}

// AnyVLAN stands for every VLAN of a bridge.
const AnyVLAN = -1

// apart returns the VLAN of a VM's first card, 0 for none, and whether its address's network is elsewhere.
func (h Hosts) apart(vm proxmox.VM) (vlan int, apart bool) {
	card := map[string]string{}
	for property := range strings.SplitSeq(vm.Config["net0"], ",") {
		name, value, _ := strings.Cut(property, "=")
		card[name] = value
	}
	vlan = int(number(card["tag"], 0))
	want, known := h.VLANs[card["bridge"]]
	return vlan, known && want != vlan && want != AnyVLAN
}

// rewired is a VM whose first card has changed while it runs. Where nobody reaches it, its machine is off for
// everybody else; once they do, it boots anew.
func (d *Datacenter) rewired(vm proxmox.VM) {
	if !vm.Address.IsValid() {
		return
	}
	address := vm.Address.Addr().String()
	vlan, apart := d.config.Hosts.apart(vm)
	switch on := d.kubeAt(address).addresses.vm(address).ID == vm.ID; {
	case apart && on:
		d.log.say("vm %d %s: its card is in VLAN %d now, where nobody reaches %s", vm.ID, vm.Name, vlan,
			address)
		d.stopped(vm)
	case !apart && !on:
		d.started(vm)
	}
}

// place puts a machine there that no hypervisor has made.
func (d *Datacenter) place(m talos.Machine) error {
	address, err := netip.ParseAddr(m.Address)
	if err == nil {
		err = d.config.Proof.Allows(address)
	}
	if err != nil {
		return err
	}
	d.log.say("machine %s: waits for a configuration at %s", m.Name, m.Address)
	return d.fleet.Place(m)
}

// reset is a machine whose disk a caller has wiped, or a part of it: data says whether etcd's data was there.
func (d *Datacenter) reset(address string, data bool) {
	d.log.say("talos %s: reset", address)
	d.tailnet.leave(address)
	k := d.kubeAt(address)
	k.off(address)
	if data {
		k.diskLost(address)
	}
}

// disks are those that Talos sees of a VM: neither its EFI variables nor its TPM.
func (d *Datacenter) disks(vm proxmox.VM) (all []talos.Disk) {
	sizes := map[string]uint64{}
	for _, disk := range d.proxmox.Disks() {
		sizes[disk.Volume] = uint64(disk.Size)
	}
	for n := range 31 {
		volume, _, _ := strings.Cut(vm.Config[fmt.Sprintf("scsi%d", n)], ",")
		if volume != "" {
			all = append(all, talos.Disk{Device: "/dev/sd" + string(rune('a'+len(all))),
				Model: "QEMU HARDDISK", Size: sizes[volume]})
		}
	}
	return all
}

// cards are the network cards of a VM: Proxmox puts net0 into slot 18 of the bus that its chipset has for it.
func cards(vm proxmox.VM) (all []talos.Card) {
	bus := 0
	if strings.Contains(vm.Config["machine"], "q35") {
		bus = 6
	}
	for n := range 6 {
		first, _, _ := strings.Cut(vm.Config[fmt.Sprintf("net%d", n)], ",")
		model, mac, is := strings.Cut(first, "=")
		if is && model == "virtio" {
			names := []string{fmt.Sprintf("ens%d", 18+n), fmt.Sprintf("enp%ds%d", bus, 18+n)}
			all = append(all, talos.Card{Names: names, MAC: mac, Driver: "virtio_net",
				BusPath: fmt.Sprintf("0000:%02x:%02x.0", bus, 18+n)})
		}
	}
	return all
}

// pressed is a VM whose power button was pressed.
func (d *Datacenter) pressed(vm proxmox.VM) {
	if address := vm.Address.Addr().String(); d.kubeAt(address).addresses.vm(address).ID == vm.ID {
		d.fleet.Shutdown(address)
	}
}

func (d *Datacenter) stopped(vm proxmox.VM) {
	if !vm.Address.IsValid() {
		return
	}
	address := vm.Address.Addr().String()
	d.log.say("vm %d %s: stopped", vm.ID, vm.Name)
	k := d.kubeAt(address)
	moves := k.addressOf(d.config.Faults.Nodes["lease-moves"])
	had, next := k.addresses.leave(vm)
	if had {
		d.fleet.Halt(address)
		k.off(address)
	}
	if address == moves {
		d.log.begins("lease-moves")
		d.leases.move(strings.ToUpper(cards(vm)[0].MAC))
	}
	if next != nil {
		d.started(*next)
	}
}

func (d *Datacenter) destroyed(vm proxmox.VM) {
	if !vm.Address.IsValid() {
		return
	}
	d.log.say("vm %d %s: destroyed", vm.ID, vm.Name)
	if address := vm.Address.Addr().String(); d.kubeAt(address).addresses.discard(address, vm.ID) {
		d.remove(address)
	}
}

// remove is the end of the machine at an address and of its disks.
func (d *Datacenter) remove(address string) {
	d.tailnet.leave(address)
	d.dead.replaced(address)
	d.fleet.Remove(address)
	k := d.kubeAt(address)
	k.off(address)
	k.diskLost(address)
	k.replicasLost(address)
}

// configured is a machine whose installed system has come up, or whose kubelet has restarted.
func (d *Datacenter) configured(m talos.MachineSpec) {
	d.tailnet.join(m, d.log.say)
	if d.kubeAt(m.Address).configured(m) {
		d.nodeDies()
	}
}

// down is a machine that ends its services to restart.
func (d *Datacenter) down(address string) {
	d.kubeAt(address).down(address)
	d.nodeDies()
}

// configured reports whether the machine was on already.
func (k *kube) configured(m talos.MachineSpec) (on bool) {
	k.log.say("talos %s: %s is configured", m.Address, m.Hostname)
	k.mu.Lock()
	defer k.mu.Unlock()
	before, on := k.machines[m.Address]
	k.machines[m.Address] = m
	k.booted[m.Address] = k.booted[m.Address] || !on
	switch {
	case k.cluster == nil: // bootstrap is yet to come
	case k.cluster.running():
		if on && m.ControlPlane && m.APIServerVersion != before.APIServerVersion {
			k.restartServer(m)
		}
		k.join(m)
	case m.ControlPlane && (k.cluster.stored[m.Address] || k.cluster.refused):
		k.startCluster() // all control planes were off, and one is back with its disk, or corrected
	}
	return on
}

// release is the newest release that a control plane's configuration names; the caller holds the mutex.
func (k *kube) release() (newest string) {
	for _, m := range k.machines {
		if semver.Compare(m.APIServerVersion, newest) > 0 {
			newest = m.APIServerVersion
		}
	}
	return newest
}

// switchedOff is a machine that has ended by itself: its VM has stopped, without a task of Proxmox.
func (d *Datacenter) switchedOff(address string) {
	d.down(address)
	d.log.say("talos %s: switched itself off", address)
	vm := d.kubeAt(address).addresses.vm(address)
	if vm.ID == 0 { // no hypervisor has it
		return
	}
	if d.cloud != nil {
		d.cloud.switchedOff(vm)
	}
	d.proxmox.PowerOff(vm.ID)
	d.stopped(vm)
}

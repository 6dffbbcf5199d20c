package datacenter

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// ghostDisk is the size of the disk of the foreign VM.
const ghostDisk = 200 << 30

// Leftovers returns the resources in the datacenter that did not exist at the start: those that a
// destroy should have deleted.
func (d *Datacenter) Leftovers() []string {
	all := []string{}
	for _, vm := range d.proxmox.VMs() {
		if vm.ID != d.config.Faults.GhostVM && !vm.Template {
			all = append(all, fmt.Sprintf("VM %d %q", vm.ID, vm.Name))
		}
	}
	for _, disk := range d.proxmox.Disks() {
		if d.isSource(disk.Volume) {
			continue
		}
		if d.config.Faults.GhostVM == 0 || disk.Owner != d.config.Faults.GhostVM {
			all = append(all, "volume "+disk.Volume)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.proxmox.HAConfig())) {
		all = append(all, "high availability "+name)
	}
	if d.cloud != nil {
		all = append(all, d.cloud.leftovers()...)
	}
	for _, m := range d.config.Machines {
		if stage := d.fleet.Stage(m.Address); stage != talos.Maintenance {
			all = append(all, fmt.Sprintf("machine %s at %s: %s", m.Name, m.Address, stage))
		}
	}
	for _, device := range d.tailnet.server.Devices() {
		all = append(all, fmt.Sprintf("device %s of the tailnet", device.Name))
	}
	for _, id := range d.tailnet.server.Keys() {
		all = append(all, fmt.Sprintf("auth key %s of the tailnet", id))
	}
	for _, s := range d.folders.added() {
		all = append(all, fmt.Sprintf("Infisical secret %s in %s", s.Key, folderName(s.Folder)))
	}
	for _, k := range d.kubes() {
		if name := k.name(); name != "" {
			all = append(all, "Kubernetes "+name)
		}
	}
	return all
}

// isSource reports whether a volume is an image that was there at the start.
func (d *Datacenter) isSource(volume string) bool { return slices.Contains(d.sources(), volume) }

// sources are the volumes that machines are made of: castle makes none of them.
func (d *Datacenter) sources() []string {
	all := slices.Clone(d.config.Hosts.Sources)
	for _, template := range d.config.Hosts.Templates {
		all = append(all, d.templateVolume(template[strings.LastIndex(template, "/")+1:]))
	}
	return all
}

// Missing returns the resources that existed at the start and no longer do: a foreign VM, an image that
// machines are made of, or a secret of the user in Infisical.
func (d *Datacenter) Missing() []string {
	all := []string{}
	for _, volume := range d.sources() {
		if !slices.ContainsFunc(d.proxmox.Disks(), func(v proxmox.Disk) bool { return v.Volume == volume }) {
			all = append(all, "image "+volume)
		}
	}
	if id := d.config.Faults.GhostVM; id != 0 {
		was := ghost(id)
		was.Config["name"] = was.Name
		intact := false
		for _, vm := range d.proxmox.VMs() {
			// Since it was started again, its uptime would be another.
			intact = intact || vm.ID == id && vm.Running && maps.Equal(vm.Config, was.Config) &&
				vm.Started.Before(d.log.began)
		}
		disk := fmt.Sprintf("local-lvm:vm-%d-disk-0", id)
		kept := slices.ContainsFunc(d.proxmox.Disks(), func(v proxmox.Disk) bool {
			return v.Volume == disk && v.Size == ghostDisk
		})
		if !intact || !kept {
			all = append(all, fmt.Sprintf("VM %d %q as it was, which was somebody else's", id, was.Name))
		}
	}
	return all
}

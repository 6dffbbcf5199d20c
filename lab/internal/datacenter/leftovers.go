package datacenter

import "fmt"

// Leftovers names what stands in the datacenter that was not there at first:
// what a destroy should have removed.
func (d *Datacenter) Leftovers() []string {
	all := []string{}
	for _, vm := range d.proxmox.VMs() {
		if vm.ID != d.config.Faults.GhostVM {
			all = append(all, fmt.Sprintf("VM %d %q", vm.ID, vm.Name))
		}
	}
	for _, disk := range d.proxmox.Disks() {
		if d.config.Faults.GhostVM == 0 || disk.Owner != d.config.Faults.GhostVM {
			all = append(all, "volume "+disk.Volume)
		}
	}
	for _, s := range d.vault.added() {
		all = append(all, fmt.Sprintf("Infisical secret %s in %s", s.Key, vaultFolder(s.Folder)))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster != nil {
		all = append(all, "Kubernetes "+d.cluster.spec.Name)
	}
	return all
}

// Missing names what was there at first and is not any more: somebody else's
// VM, or a secret that the user had put into Infisical.
func (d *Datacenter) Missing() []string {
	all := []string{}
	if id := d.config.Faults.GhostVM; id != 0 {
		intact := false
		for _, vm := range d.proxmox.VMs() {
			intact = intact || vm.ID == id && vm.Name == ghost(id).Name && vm.Running
		}
		if !intact {
			all = append(all, fmt.Sprintf("VM %d %q, which was somebody else's", id, ghost(id).Name))
		}
	}
	return all
}

package datacenter

import "sync"

// dead is the machine that the fault node-dead has killed.
type dead struct {
	mu      sync.Mutex
	begun   bool
	address string
}

// nodeDies is the fault node-dead, once a machine of a cluster that has answered begins to restart or follows
// another configuration: before the client that asked for this has its answer. The VM runs on, and its guest
// is dead: it answers nobody, ignores ACPI and stays dead at each start, until the VM is destroyed.
func (d *Datacenter) nodeDies() {
	address := d.kube.addressOf(d.config.Faults.Nodes["node-dead"])
	d.dead.mu.Lock()
	begins := address != "" && !d.dead.begun
	if begins {
		d.dead.begun, d.dead.address = true, address
	}
	d.dead.mu.Unlock()
	if !begins {
		return
	}
	d.log.begins("node-dead")
	if vm := d.kube.addresses.vm(address); vm.ID != 0 {
		d.proxmox.SetDeaf(vm.ID, true)
	}
	d.fleet.Halt(address)
	d.kube.off(address)
}

// is reports whether the machine at an address is dead.
func (x *dead) is(address string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return address == x.address
}

// replaced is another machine at the address.
func (x *dead) replaced(address string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if address == x.address {
		x.address = ""
	}
}

// addressOf is the address of a node of a cluster that has answered; empty for none.
func (k *kube) addressOf(node string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cluster == nil || !k.cluster.answered {
		return ""
	}
	for address, name := range k.cluster.nodes {
		if name == node {
			return address
		}
	}
	return ""
}

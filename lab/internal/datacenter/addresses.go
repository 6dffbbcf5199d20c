package datacenter

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

// addresses knows whose machine is at which address. While a VM is on, another one with its address waits, as
// nobody would reach it.
type addresses struct {
	mu          sync.Mutex
	on, waiting map[string]proxmox.VM
	disks       map[string]int // the VM whose disks the machine there has
}

func newAddresses() *addresses {
	return &addresses{on: map[string]proxmox.VM{}, waiting: map[string]proxmox.VM{}, disks: map[string]int{}}
}

// vm returns the VM that is on at an address.
func (a *addresses) vm(address string) proxmox.VM {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.on[address]
}

// owner returns the id of the VM whose disks the machine at an address has, even if it is off; 0 for none.
func (a *addresses) owner(address string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.disks[address]
}

// occupy gives a VM its address, unless the machine there has the disks of another VM: it returns that one's
// id, and whether it is on.
func (a *addresses) occupy(vm proxmox.VM) (former int, on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	address := vm.Address.Addr().String()
	if former := a.disks[address]; former != 0 && former != vm.ID {
		if _, on = a.on[address]; on {
			a.waiting[address] = vm
		} else {
			delete(a.disks, address)
		}
		return former, on
	}
	a.on[address], a.disks[address] = vm, vm.ID
	return 0, false
}

// leave is a VM that has stopped. It reports whether the VM had its address, and which one waits for it.
func (a *addresses) leave(vm proxmox.VM) (had bool, next *proxmox.VM) {
	a.mu.Lock()
	defer a.mu.Unlock()
	address := vm.Address.Addr().String()
	waiting, waits := a.waiting[address]
	if waits && waiting.ID == vm.ID {
		delete(a.waiting, address)
		return false, nil
	}
	if on, is := a.on[address]; is && on.ID != vm.ID {
		return false, nil
	}
	delete(a.on, address)
	if waits {
		delete(a.waiting, address)
		next = &waiting
	}
	return true, next
}

// discard is the end of a VM's disks. It reports whether the machine at the address had them.
func (a *addresses) discard(address string, vm int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.disks[address] != vm {
		return false
	}
	delete(a.on, address)
	delete(a.disks, address)
	return true
}

// leases are those of the DHCP server, by the MAC of a card in upper case. None ends.
type leases struct {
	mu   sync.Mutex
	free []netip.Addr
	of   map[string]netip.Addr
}

// lease returns the address of a card; the zero value if there is none left for it.
func (l *leases) lease(mac string) netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.of[mac]; !is && len(l.free) > 0 {
		l.of[mac], l.free = l.free[0], l.free[1:]
	}
	return l.of[mac]
}

// move gives a card another address, as a server without a reservation may.
func (l *leases) move(mac string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, mac)
}

// leased returns a listener that knows the address of a VM which asks for it by DHCP: the one that is
// reserved for its first card, or the one that the server has for others.
func (d *Datacenter) leased(listen func(proxmox.VM)) func(proxmox.VM) {
	return func(vm proxmox.VM) { listen(d.withLease(vm)) }
}

func (d *Datacenter) withLease(vm proxmox.VM) proxmox.VM {
	asks := slices.Contains(strings.Split(vm.Config["ipconfig0"], ","), "ip=dhcp")
	if cards := cards(vm); asks && len(cards) > 0 {
		mac := strings.ToUpper(cards[0].MAC)
		address, is := d.config.Hosts.Reserved[mac]
		if !is {
			address = d.leases.lease(mac)
		}
		if address.IsValid() {
			vm.Address, vm.Second = netip.PrefixFrom(address, 24), vm.Address
		}
	}
	return vm
}

// agent is the guest agent of a VM: it runs where the image has it and Talos has started, and tells all
// addresses of the first card, also a virtual one.
func (d *Datacenter) agent(vm proxmox.VM) (addresses []netip.Prefix, runs bool) {
	vm = d.withLease(vm)
	address := vm.Address.Addr().String()
	k := d.kubeAt(address)
	if k.addresses.vm(address).ID != vm.ID || d.dead.is(address) ||
		!d.images.Extends(vm.ImageURL, "siderolabs/qemu-guest-agent") {
		return nil, false
	}
	for virtual, holder := range k.heldAddresses() {
		if a, err := netip.ParseAddr(virtual); err == nil && holder == address {
			addresses = append(addresses, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return append(addresses, vm.Address, vm.Second), true
}

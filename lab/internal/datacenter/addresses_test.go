package datacenter

import (
	"net/netip"
	"testing"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// A VM that asks for its address has the one that is reserved for its card, and without a reservation one
// that nobody knows.
func TestAReservedAddressIsThatOfItsCard(t *testing.T) {
	reserved := netip.MustParseAddr("192.168.1.212")
	d := &Datacenter{leases: &leases{}, config: Config{Hosts: Hosts{
		Reserved: map[string]netip.Addr{"BC:24:11:2A:3B:4C": reserved}}}}
	static := netip.MustParsePrefix("192.168.1.213/24")
	for name, c := range map[string]struct {
		vm   proxmox.VM
		want netip.Addr
	}{
		"reserved": {proxmox.VM{Config: map[string]string{"ipconfig0": "ip=dhcp",
			"net0": "virtio=bc:24:11:2a:3b:4c,bridge=vmbr0"}}, reserved},
		"of another card": {proxmox.VM{Config: map[string]string{"ipconfig0": "ip=dhcp",
			"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
			"net1": "virtio=BC:24:11:2A:3B:4C,bridge=vmbr0"}}, netip.Addr{}},
		"static": {proxmox.VM{Address: static, Config: map[string]string{"ipconfig0": "ip=192.168.1.213/24",
			"net0": "virtio=BC:24:11:2A:3B:4C,bridge=vmbr0"}}, static.Addr()},
	} {
		d.leased(func(vm proxmox.VM) {
			if got := vm.Address.Addr(); got != c.want {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		})(c.vm)
	}
}

// A card without a reservation keeps its lease until the server gives it another one.
func TestALeaseIsThatOfItsCard(t *testing.T) {
	first, second := netip.MustParseAddr("192.168.1.254"), netip.MustParseAddr("192.168.1.253")
	l := &leases{free: []netip.Addr{first, second}, of: map[string]netip.Addr{}}
	if l.lease("A") != first || l.lease("B") != second || l.lease("A") != first || l.lease("C").IsValid() {
		t.Errorf("leases are %v, and %v are free", l.of, l.free)
	}
	l.free = []netip.Addr{netip.MustParseAddr("192.168.1.252")}
	if l.move("A"); l.lease("A") == first || l.lease("B") != second {
		t.Errorf("after a move, leases are %v", l.of)
	}
}

// The machines' network is in one VLAN of a bridge. Another bridge may lead anywhere.
func TestTheNetworkIsInOneVLAN(t *testing.T) {
	h := Hosts{VLANs: map[string]int{"vmbr0": 10, "vmbr1": 0}}
	for card, apart := range map[string]bool{
		"vmbr0,tag=10": false, "vmbr0,tag=20": true, "vmbr0": true,
		"vmbr1": false, "vmbr1,tag=10": true, "vmbr2,tag=10": false,
	} {
		vm := proxmox.VM{Config: map[string]string{"net0": "virtio=BC:24:11:00:00:01,bridge=" + card}}
		if _, got := h.apart(vm); got != apart {
			t.Errorf("%s: apart %t", card, got)
		}
	}
}

// Nobody reaches a machine whose card is in another VLAN, from its start on or since it was moved there.
func TestAMachineInAnotherVLANIsNotReached(t *testing.T) {
	d, log := start(t, Config{Hosts: Hosts{VLANs: map[string]int{"vmbr0": 0}}})
	address := netip.MustParsePrefix("127.0.7.71/24")
	vm := func(tag string) proxmox.VM {
		return proxmox.VM{ID: 421, Name: "cp-01", Address: address, Image: "nocloud.img",
			Config: map[string]string{"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0" + tag}}
	}
	d.started(vm(",tag=20"))
	log.await(t, "vm 421 cp-01: started in VLAN 20, where nobody reaches 127.0.7.71", 1)
	d.rewired(vm(""))
	log.await(t, "vm 421 cp-01: started; Talos boots at 127.0.7.71", 1)
	d.rewired(vm(",tag=20"))
	log.await(t, "vm 421 cp-01: its card is in VLAN 20 now, where nobody reaches 127.0.7.71", 1)
	if got := d.fleet.Stage(address.Addr().String()); got != talos.Off {
		t.Errorf("the machine is %q", got)
	}
}

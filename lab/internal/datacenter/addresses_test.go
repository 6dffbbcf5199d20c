package datacenter

import (
	"net/netip"
	"testing"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

// A VM that asks for its address has the one that is reserved for its card, and without a reservation one
// that nobody knows.
func TestAReservedAddressIsThatOfItsCard(t *testing.T) {
	reserved := netip.MustParseAddr("192.168.1.212")
	d := &Datacenter{config: Config{Hosts: Hosts{
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

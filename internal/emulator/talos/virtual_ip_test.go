package talos_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

func (l *lab) vipOn(link string) string {
	return fmt.Sprintf("apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: %s\nlink: %s\n", l.vip(), link)
}

// raiseWithVIP raises control planes until all vote and one has the virtual address.
func (l *lab) raiseWithVIP(cps int) {
	l.t.Helper()
	l.raise(cps, 0, l.vipOn("uplink"))
	if err := l.bootstrap(l.address(1)); err != nil {
		l.t.Fatal(err)
	}
	l.clock.advance(10 * step)
	l.wantHolder(1)
}

// addresses reads the addresses in force, each with its link.
func addresses(t *testing.T, c *client.Client) []string {
	t.Helper()
	list, err := safe.StateListAll[*network.AddressStatus](within(t), c.COSI)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for a := range list.All() {
		all = append(all, a.Metadata().ID())
	}
	slices.Sort(all)
	return all
}

// wantHolder fails unless machine n alone, of those that run, has the virtual
// address; 0 is no machine.
func (l *lab) wantHolder(n int) {
	l.t.Helper()
	for i := 1; l.fleet.Stage(l.address(i)) != talos.Off || i <= n; i++ {
		if l.fleet.Stage(l.address(i)) != talos.Running {
			continue
		}
		has := slices.Contains(addresses(l.t, l.as(role.Reader, l.address(i))), "ens18/"+l.vip()+"/32")
		if has != (i == n) {
			l.t.Errorf("machine %d has the virtual address: %t, want the holder to be %d", i, has, n)
		}
	}
	want := ""
	if n != 0 {
		want = l.address(n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := append([]string{""}, l.holders...); got[len(got)-1] != want {
		l.t.Errorf("the hook got %q, want %q last", l.holders, want)
	}
}

func TestVirtualAddressComesAfterEtcdAndBeforeKubernetes(t *testing.T) {
	l := newLab(t)
	l.raise(3, 0, l.vipOn("uplink"))
	l.wantHolder(0)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	l.wantHolder(0)
	l.clock.advance(step / 2)
	l.wantHolder(1)
	if len(l.bootstraps) != 0 {
		t.Error("Kubernetes is there before the virtual address")
	}
	l.clock.advance(10 * step)
	l.wantHolder(1) // later candidates are in line
}

func TestShutdownMovesTheVirtualAddress(t *testing.T) {
	l := newLab(t)
	l.raiseWithVIP(3)
	if err := l.as(role.Admin, l.address(1)).Shutdown(within(t)); err != nil {
		t.Fatal(err)
	}
	l.wantHolder(2)
	l.bootNew(1)
	l.clock.advance(3 * step)
	l.wantHolder(2) // a machine that returns is last in line
	if err := l.as(role.Admin, l.address(2)).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.wantHolder(3)
}

func TestPowerCutKeepsTheVirtualAddressUntilTheSessionEnds(t *testing.T) {
	l := newLab(t)
	l.raiseWithVIP(3)
	l.fleet.Halt(l.address(1))
	l.clock.advance(step / 2)
	for _, n := range []int{2, 3} {
		if all := addresses(t, l.as(role.Reader, l.address(n))); len(all) != 2 {
			t.Errorf("machine %d has %v before the session of the one that is off has ended", n, all)
		}
	}
	l.clock.advance(step / 2)
	if all := addresses(t, l.as(role.Reader, l.address(2))); !slices.Contains(all, "ens18/"+l.vip()+"/32") {
		t.Errorf("machine 2 has %v", all)
	}
}

func TestVirtualAddressIsLostWithoutAQuorum(t *testing.T) {
	l := newLab(t)
	l.raiseWithVIP(3)
	l.fleet.Halt(l.address(2))
	l.fleet.Halt(l.address(3))
	l.clock.advance(step / 2)
	l.wantHolder(1)
	l.clock.advance(step / 2)
	l.wantHolder(0)
	l.bootNew(2)
	l.clock.advance(3 * step)
	if held := l.holders[len(l.holders)-1]; held == "" {
		t.Error("with a quorum again, no machine has the virtual address")
	}
}

func TestLearnerIsNoCandidate(t *testing.T) {
	l := newLab(t)
	l.fleet.HoldLearner("blue-02")
	l.raiseWithVIP(2)
	if err := l.fleet.MoveVirtualIP(l.vip(), ""); err == nil {
		t.Error("the virtual address went to a learner")
	}
	l.fleet.ReleaseLearner("blue-02")
	l.clock.advance(2 * step)
	if err := l.fleet.MoveVirtualIP(l.vip(), ""); err != nil {
		t.Error(err)
	}
	l.wantHolder(2)
}

func TestMoveVirtualIPChangesTheHolder(t *testing.T) {
	l := newLab(t)
	l.raiseWithVIP(3)
	for _, move := range []struct {
		to     string
		holder int
	}{{"", 2}, {"blue-01", 1}, {l.address(3), 3}, {"", 2}, {"", 1}} {
		if err := l.fleet.MoveVirtualIP(l.vip(), move.to); err != nil {
			t.Fatal(err)
		}
		l.wantHolder(move.holder)
	}
	for _, to := range []string{"blue-01", "blue-04"} { // it has it; there is none
		if err := l.fleet.MoveVirtualIP(l.vip(), to); err == nil {
			t.Errorf("moved to %s", to)
		}
	}
	if err := l.fleet.MoveVirtualIP(l.address(1), ""); err == nil {
		t.Error("moved an address that is not virtual")
	}
}

func TestAnAliasOfSeveralCardsIsNone(t *testing.T) {
	for selector, holder := range map[string]int{
		`link.driver == "virtio_net"`:                                    0, // both
		`link.driver == "virtio_net" && link.bus_path.endsWith(":12.0")`: 1,
		`mac(link.permanent_addr) == "bc:24:11:00:00:01"`:                1,
		`link.driver == "virtio_net" && link.bus_path == "0000:06:13.0"`: 0, // in another network
		`link.driver == "igb"`:                                           0,
	} {
		l := newLab(t)
		if err := l.fleet.Boot(talos.Machine{Address: l.address(1), Name: "blue-01", Cards: []talos.Card{
			{Names: []string{"ens18"}, MAC: "BC:24:11:00:00:01", Driver: "virtio_net",
				BusPath: "0000:06:12.0"},
			{Names: []string{"ens19"}, MAC: "BC:24:11:00:00:02", Driver: "virtio_net",
				BusPath: "0000:06:13.0"},
		}}); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(step)
		alias := "apiVersion: v1alpha1\nkind: LinkAliasConfig\nname: uplink\nselector:\n  match: '" +
			selector + "'\n"
		if err := l.apply(l.address(1), l.machineConfig(machine.TypeControlPlane, alias,
			l.vipOn("uplink"))); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(2 * step)
		if err := l.bootstrap(l.address(1)); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(10 * step)
		l.wantHolder(holder)
	}
}

func TestVirtualAddressOnAMissingLinkNeverAppears(t *testing.T) {
	for link, holder := range map[string]int{"eth0": 0, "enp6s18": 1} {
		l := newLab(t)
		if err := l.fleet.Boot(talos.Machine{Address: l.address(1), Name: "blue-01",
			Links: []string{"ens18", "enp6s18"}}); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(step)
		if err := l.apply(l.address(1), l.machineConfig(machine.TypeControlPlane,
			l.vipOn(link))); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(2 * step)
		if err := l.bootstrap(l.address(1)); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(10 * step)
		l.wantHolder(holder)
	}
}

package talos

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestTheLeaderLetsAnotherLead(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(3)
	leaders := func() (all []int) {
		t.Helper()
		for n := 1; n <= 3; n++ {
			member, err := l.node(n, role.Admin).EtcdMember(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if member.Leads {
				all = append(all, n)
			}
		}
		return all
	}
	before := leaders()
	if len(before) != 1 {
		t.Fatalf("%v lead", before)
	}
	for range 2 { // the second time it does not lead
		if err := l.node(before[0], role.Admin).ForfeitLeadership(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if after := leaders(); len(after) != 1 || after[0] == before[0] {
		t.Errorf("%v led, and %v lead", before, after)
	}
	l.fleet.Halt(l.address(1))
	for _, n := range []int{1, 4} {
		if member, err := l.node(n, role.Admin).EtcdMember(t.Context()); err == nil {
			t.Errorf("a machine that is off, or a worker, has the member %+v", member)
		}
	}
	err := l.node(2, role.Reader).ForfeitLeadership(t.Context())
	if err == nil || !strings.Contains(err.Error(), "may not change etcd (os:admin may)") {
		t.Errorf("a reader: %v", err)
	}
}

func TestOneMemberAloneKeepsTheLeadership(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(1)
	if err := l.node(1, role.Admin).ForfeitLeadership(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMembersAreThoseThatAllControlPlanesList(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(3)
	config := l.talosconfig(role.Admin, l.vip())
	members := func(endpoints ...string) []Member {
		t.Helper()
		all, err := Members(t.Context(), config, endpoints)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Address, b.Address) })
		return all
	}
	all := members(l.addresses(3)...)
	if len(all) != 3 || all[2].Address != l.address(3) || all[2].ID == 0 {
		t.Errorf("got %+v", all)
	}
	if err := EtcdHealthy(t.Context(), config, l.addresses(3), 3); err != nil {
		t.Error(err)
	}
	if err := EtcdHealthy(t.Context(), config, l.addresses(3), 2); err == nil ||
		err.Error() != "etcd: 3 voters where 2 are wanted" {
		t.Errorf("got %v", err)
	}
	if err := l.node(3, role.Admin).LeaveEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := members(l.addresses(2)...); len(got) != 2 {
		t.Errorf("after it left: %+v", got)
	}
	if _, err := Members(t.Context(), config, l.addresses(3)); err == nil ||
		!strings.Contains(err.Error(), "etcd's members are not known; "+l.address(3)) {
		t.Errorf("one does not answer: %v", err)
	}
	if _, err := Members(t.Context(), config, nil); err == nil {
		t.Error("nobody was asked, and there are members")
	}
}

// Two machines that were bootstrapped are two clusters.
func TestMembersOfTwoClustersAreAnError(t *testing.T) {
	l := newLab(t, emulator.Delays{Join: time.Hour})
	l.raise(1)
	others := newLab(t, emulator.Delays{})
	others.network, others.secrets = l.network, l.secrets
	others.configure(2, 2)
	others.bootstrap(2)
	await(t, gate.Gate{Name: "disagreement", Check: func(ctx context.Context) error {
		_, err := Members(ctx, l.talosconfig(role.Admin, l.vip()), l.addresses(2))
		if err == nil || !strings.Contains(err.Error(), "members differ: ") {
			return errors.Join(errors.New("no disagreement"), err)
		}
		return nil
	}})
}

func TestTheMemberOfADeadMachineIsRemovedOnce(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(3)
	config := l.talosconfig(role.Admin, l.vip())
	all, err := Members(t.Context(), config, l.addresses(3))
	if err != nil {
		t.Fatal(err)
	}
	dead := all[slices.IndexFunc(all, func(m Member) bool { return m.Address == l.address(3) })]
	l.fleet.Remove(l.address(3))
	for range 2 {
		if err := RemoveMember(t.Context(), config, l.address(1), dead.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := EtcdHealthy(t.Context(), config, l.addresses(2), 2); err != nil {
		t.Error(err)
	}
	l.fleet.Halt(l.address(2))
	if err := RemoveMember(t.Context(), config, l.address(1), all[0].ID); err == nil {
		t.Error("removed without a quorum")
	}
}

func TestHolderOfIsTheControlPlaneWithTheAddress(t *testing.T) {
	l := newLab(t, emulator.Delays{Session: time.Hour})
	l.raiseHeld(2)
	config := l.talosconfig(role.Reader, l.vip())
	if got, err := HolderOf(t.Context(), config, l.addresses(2), l.vip()); err != nil || got != l.address(1) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := HolderOf(t.Context(), config, l.addresses(2), "10.9.9.9"); err != nil || got != "" {
		t.Errorf("an address that nobody has: %q, %v", got, err)
	}
	l.fleet.Halt(l.address(1))
	if got, err := HolderOf(t.Context(), config, l.addresses(2), l.vip()); err == nil {
		t.Errorf("its holder does not answer, and it is %q", got)
	}
	if _, err := HolderOf(t.Context(), config, l.addresses(2), "vip"); err == nil {
		t.Error("no address is one")
	}
}

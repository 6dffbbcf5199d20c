package talos

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

func (l *lab) vip() string { return l.network + ".210" }

func (l *lab) vipGate(talosconfig []byte) gate.Gate {
	l.t.Helper()
	g, err := virtualIPType().New("virtual_ip.api", gate.Target{Talosconfig: talosconfig},
		gate.Values{"address": cty.StringVal(l.vip())})
	if err != nil {
		l.t.Fatal(err)
	}
	return g
}

// raiseHeld raises control planes of which the first has the virtual address,
// and returns the gate that has seen it there.
func (l *lab) raiseHeld(n int) gate.Gate {
	l.t.Helper()
	l.raise(1)
	await(l.t, l.vipGate(l.talosconfig(role.Reader, l.address(1))))
	for i := 2; i <= n; i++ {
		l.configure(i, machine.TypeControlPlane)
	}
	config := l.talosconfig(role.Reader, l.addresses(n)...)
	await(l.t, l.gate(n, config))
	g := l.vipGate(config)
	await(l.t, g)
	return g
}

func TestVirtualIPOpensOnceOneControlPlaneHasIt(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	g := l.vipGate(l.talosconfig(role.Reader, l.addresses(3)...))
	for n := 1; n <= 3; n++ {
		l.configure(n, machine.TypeControlPlane)
	}
	says(t, g, "virtual address "+l.vip()+": missing on "+strings.Join(l.addresses(3), ", "))
	l.bootstrap(1)
	await(t, g)
}

func TestVirtualIPIsWatchedFromTheBootOfItsMachine(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	g := l.vipGate(l.talosconfig(role.Reader, l.address(1)))
	checked, opened := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		// Without a change, the next check comes an hour later.
		opened <- gate.Wait(t.Context(), g, gate.Policy{Timeout: time.Hour, First: time.Hour,
			Most: time.Hour},
			gate.Listener{Answer: func(error) {
				select {
				case checked <- struct{}{}:
				default:
				}
			}})
	}()
	<-checked
	l.raise(1)
	select {
	case err := <-opened:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testTimeout):
		t.Error("the address exists, and the gate did not check again")
	}
}

func TestVirtualIPIsClosedOnceAfterAMove(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	g := l.raiseHeld(2)
	await(t, gate.Gate{Name: "move", Check: func(context.Context) error {
		return l.fleet.MoveVirtualIP(l.vip(),
			l.address(2))
	}})
	if err := g.Check(t.Context()); err == nil ||
		err.Error() != "virtual address "+l.vip()+": moved from "+l.address(1)+" to "+l.address(2) {
		t.Errorf("after the move: %v", err)
	}
	if err := g.Check(t.Context()); err != nil {
		t.Errorf("where it stays: %v", err)
	}
}

func TestVirtualIPIsClosedWhileAControlPlaneIsDown(t *testing.T) {
	l := newLab(t, emulator.Delays{Session: time.Hour})
	g := l.raiseHeld(3)
	l.fleet.Halt(l.address(3))
	says(t, g, "virtual address "+l.vip()+": "+l.address(1)+" has it, but not every control plane answers; "+
		l.address(3)+": connection refused")
	l.fleet.Halt(l.address(1))
	says(t, g, "virtual address "+l.vip()+": missing on "+l.address(2)+"; "+l.address(1)+", "+l.address(3)+
		": connection refused")
	l.fleet.Halt(l.address(2))
	says(t, g, "virtual address "+l.vip()+": no control plane answers; "+strings.Join(l.addresses(3), ", ")+
		": connection refused")
}

func TestVirtualIPIsClosedWhileTwoMachinesHaveIt(t *testing.T) {
	g := &virtualIPGate{address: netip.MustParseAddr("10.0.0.10")}
	two := []nodeView{at(nodeView{endpoint: "a"}, "10.0.0.10/32"), {endpoint: "b"},
		at(nodeView{endpoint: "c"}, "10.0.0.10/32")}
	if err := g.checkHolder(two); err == nil ||
		err.Error() != "virtual address 10.0.0.10: 2 control planes have it: a (ens18), c (ens18)" {
		t.Errorf("got %v", err)
	}
}

func TestVirtualIPFailsPermanentlyWithoutTheReaderRole(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(1)
	await(t, l.vipGate(l.talosconfig(role.Reader, l.address(1))))
	err := gate.Wait(t.Context(), l.vipGate(l.talosconfig(role.EtcdBackup, l.address(1))),
		gate.Policy{Timeout: testTimeout}, gate.Listener{})
	if !gate.IsPermanent(err) || !strings.Contains(err.Error(),
		"role may not read addresses (os:reader may)") {
		t.Errorf("got %v", err)
	}
}

func TestVirtualIPCountsStableChecksAgainAfterAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &virtualIPGate{address: netip.MustParseAddr("10.0.0.10")}
		held := func(holder string) []nodeView {
			var all []nodeView
			for _, e := range []string{"a", "b"} {
				n := nodeView{endpoint: e}
				if e == holder {
					n = at(n, "10.0.0.10/32")
				}
				all = append(all, n)
			}
			return all
		}
		holders, checked := []string{"a", "a", "b", "b", "b", "b"}, 0
		bound := gate.Gate{Name: "virtual_ip.api", Check: func(context.Context) error {
			checked++
			return g.checkHolder(held(holders[min(checked, len(holders))-1]))
		}}
		if err := gate.Wait(t.Context(), bound, gate.Policy{Stable: 3}, gate.Listener{}); err != nil ||
			checked != 6 {
			t.Errorf("open after %d attempts (%v), want 6: two at a, the move, three at b", checked, err)
		}
	})
}

func TestVirtualIPRejectsItselfAsEndpoint(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	for name, c := range map[string]struct {
		address, endpoint, want string
	}{
		"the address itself": {l.vip(), l.vip(), "is the virtual address itself"},
		"with a port":        {l.vip(), l.vip() + ":50000", "is the virtual address itself"},
		"written otherwise":  {"fd00::1", "fd00:0::1", "is the virtual address itself"},
		"a machine's own":    {l.vip(), l.address(1), ""},
		"a name":             {l.vip(), "cp-01.example", ""},
	} {
		values := gate.Values{"address": cty.StringVal(c.address),
			"endpoints": cty.ListVal([]cty.Value{cty.StringVal(c.endpoint)})}
		_, err := virtualIPType().New("virtual_ip.api",
			gate.Target{Talosconfig: l.talosconfig(role.Reader, l.address(1))}, values)
		for _, err := range []error{err, virtualIPType().Check(values)} {
			if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
		}
	}
	if err := virtualIPType().Check(gate.Values{"address": cty.UnknownVal(cty.String),
		"endpoints": cty.UnknownVal(cty.List(cty.String))}); err != nil {
		t.Errorf("nothing is known yet: %v", err)
	}
	for text, good := range map[string]bool{"192.168.1.210": true, "fd00::1": true, "192.168.1.210/24": false,
		"vip": false, "": false} {
		if err := virtualIPType().Attributes["address"].Valid(cty.StringVal(text)); (err == nil) != good {
			t.Errorf("address %q: %v", text, err)
		}
	}
	_, err := virtualIPType().New("virtual_ip.api",
		gate.Target{Talosconfig: []byte("context: a\ncontexts: {a: {}}")},
		gate.Values{"address": cty.StringVal(l.vip())})
	if err == nil || !strings.Contains(err.Error(), "name every control plane") {
		t.Errorf("no endpoints: %v", err)
	}
}

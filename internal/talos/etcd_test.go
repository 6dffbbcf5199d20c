package talos

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/gen/xslices"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestEtcdGateOpensOnceEveryControlPlaneVotes(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	g := l.gate(3, l.talosconfig(role.Reader, l.addresses(3)...))
	l.raise(3)
	await(t, g)
}

func TestEtcdGateNamesALearner(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.fleet.HoldLearner("blue-03")
	l.raise(3)
	g := l.gate(3, l.talosconfig(role.Admin, l.addresses(3)...))
	says(t, g, "etcd: 2 of 3 voters, 1 learner (blue-03)")
	l.fleet.ReleaseLearner("blue-03")
	await(t, g)
}

func TestEtcdGateWaitsWhileAMachineBootsAndInstalls(t *testing.T) {
	l := newLab(t, emulator.Delays{Boot: time.Hour})
	l.bootNew(1)
	g := l.gate(1, l.talosconfig(role.Admin, l.address(1)))
	says(t, g, "etcd: no voter answers; "+l.address(1)+": connection refused")

	l = newLab(t, emulator.Delays{})
	l.bootNew(1)
	g = l.gate(1, l.talosconfig(role.Admin, l.address(1)))
	says(t, g, "etcd: no voter answers; "+l.address(1)+": shows no certificate of this cluster (it waits "+
		"for its configuration, or belongs to another cluster)")
	l.configure(2, machine.TypeControlPlane)
	g = l.gate(1, l.talosconfig(role.Admin, l.address(2)))
	says(t, g, "etcd: no voter answers; "+l.address(2)+": etcd does not run yet")
	l.bootstrap(2)
	await(t, g)
}

func TestEtcdGateIsClosedWhileAControlPlaneIsDown(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(3)
	g := l.gate(3, l.talosconfig(role.Admin, l.addresses(3)...))
	await(t, g)
	l.fleet.Halt(l.address(1))
	says(t, g, "etcd: 3 of 3 voters; "+l.address(1)+": connection refused")
	l.fleet.Halt(l.address(2))
	says(t, g, "etcd: no voter answers; "+l.address(1)+", "+l.address(2)+": connection refused; "+
		l.address(3)+": etcdserver: no leader")
}

func TestEtcdGateIsClosedOnAnAlarm(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(1)
	g := l.gate(1, l.talosconfig(role.Admin, l.address(1)))
	await(t, g)
	if err := l.fleet.RaiseAlarm("blue-01", "NOSPACE"); err != nil {
		t.Fatal(err)
	}
	says(t, g, "etcd: 1 of 1 voters; alarm NOSPACE on blue-01")
}

func TestEtcdGateIsClosedOnTooManyVoters(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(3)
	await(t, l.gate(3, l.talosconfig(role.Admin, l.addresses(3)...)))
	says(t, l.gate(2, l.talosconfig(role.Admin, l.addresses(3)...)), "etcd: 3 voters where 2 are wanted")
}

func TestEtcdGateChecksEveryVoterDirectly(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(2)
	await(t, l.gate(2, l.talosconfig(role.Admin, l.addresses(2)...)))
	// Two ways to write one machine's address.
	same := l.gate(2, l.talosconfig(role.Admin, l.address(1), l.address(1)+":50000"))
	says(t, same, "etcd: 2 of 2 voters; no endpoint leads to blue-02")
}

func TestEtcdGateFailsPermanentlyWhereWaitingCannotHelp(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(1)
	await(t, l.gate(1, l.talosconfig(role.Admin, l.address(1))))
	l.configure(2, machine.TypeWorker)
	for want, talosconfig := range map[string][]byte{
		"is a worker":             l.talosconfig(role.Admin, l.addresses(2)...),
		"role may not read":       l.talosconfig(role.ImageVerifier, l.address(1)),
		"etcd: no voter answers;": l.talosconfig(role.MetaWriter, l.address(1)),
	} {
		err := gate.Wait(t.Context(), l.gate(1, talosconfig), gate.Policy{Timeout: testTimeout,
			First: time.Millisecond, Most: time.Millisecond}, gate.Listener{})
		if !gate.IsPermanent(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q at once", err, want)
		}
	}
}

func TestEtcdGateTimesOutOnAMachineThatNeverAnswers(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.mute(l.address(1))
	m, err := newMachines(l.talosconfig(role.Admin, l.address(1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.timeout = 50 * time.Millisecond
	err = m.checkQuorum(t.Context(), 1)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || err.Error() != "etcd: no voter answers; "+
		l.address(1)+": no answer within 50ms" {
		t.Errorf("got %v", err)
	}
}

func TestCancelledCheckReturnsItsCause(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	g := l.gate(1, l.talosconfig(role.Admin, l.address(1)))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	cancel(cause)
	if err := g.Check(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestEtcdGateRejectsUnusableArguments(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	one := l.talosconfig(role.Admin, l.address(1))
	list := cty.ListVal([]cty.Value{cty.StringVal(l.address(1)), cty.StringVal(l.address(2)),
		cty.StringVal(l.address(3))})
	for name, c := range map[string]struct {
		talosconfig []byte
		endpoints   cty.Value
		want        string // empty: accepted
	}{
		"nothing":           {nil, cty.NilVal, "there is no talosconfig"},
		"no YAML":           {[]byte("context: [secret"), cty.NilVal, "the talosconfig is no valid YAML"},
		"no context":        {[]byte("context: blue\n"), cty.NilVal, `no context "blue"`},
		"too few endpoints": {one, cty.NilVal, "3 voters are wanted and 1 endpoints known"},
		"the gate's own":    {one, list, ""},
		"nodes for endpoints": {[]byte("context: a\ncontexts: {a: {nodes: [10.0.0.1, 10.0.0.2, 10.0.0.3]}}"),
			cty.NilVal, ""},
		"the same one repeated": {l.talosconfig(role.Admin, l.address(1), l.address(1), l.address(1)),
			cty.NilVal, "1 endpoints known"},
	} {
		values := gate.Values{"voters": cty.NumberIntVal(3)}
		if c.endpoints != cty.NilVal {
			values["endpoints"] = c.endpoints
		}
		_, err := etcdType().New("talos_etcd.members", gate.Target{Talosconfig: c.talosconfig}, values)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error quotes the file: %v", name, err)
		}
	}
}

// A control plane that was reset has left etcd.
func TestAResetMachineIsNoMember(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(3)
	config := l.talosconfig(role.Admin, l.addresses(3)...)
	await(t, l.gate(3, config))
	members := func(endpoints ...string) []string {
		t.Helper()
		all, err := Members(t.Context(), config, endpoints)
		if err != nil {
			t.Fatal(err)
		}
		addresses := xslices.Map(all, func(m Member) string { return m.Address })
		slices.Sort(addresses)
		return addresses
	}
	if got := members(l.address(1)); !slices.Equal(got, l.addresses(3)) {
		t.Errorf("got %v", got)
	}
	parsed, err := clientconfig.FromBytes(config)
	if err != nil {
		t.Fatal(err)
	}
	l.retry(func(c *client.Client) error {
		return c.Reset(t.Context(), true, false)
	}, client.WithConfig(parsed), client.WithEndpoints(l.address(3)))
	if got := members(l.address(1)); !slices.Equal(got, l.addresses(2)) {
		t.Errorf("after a reset: %v", got)
	}
	if all, err := Members(t.Context(), config, l.addresses(3)); err == nil {
		t.Errorf("one does not answer: %v", all)
	}
	if got := Endpoints(config); !slices.Equal(got, l.addresses(3)) {
		t.Errorf("endpoints: %v", got)
	}
	if got := Endpoints([]byte("context: a\n")); got != nil {
		t.Errorf("endpoints of no talosconfig: %v", got)
	}
}

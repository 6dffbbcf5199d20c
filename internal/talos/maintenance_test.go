package talos

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// maintenance creates the preflight for machine 1 with this timeout.
func (l *lab) maintenance(testTimeout time.Duration) *maintenance {
	l.t.Helper()
	config, err := clientconfig.FromBytes(l.talosconfig(role.Admin, l.address(1)))
	if err != nil {
		l.t.Fatal(err)
	}
	return &maintenance{
		config: config, endpoints: map[string]string{"cp-01": l.address(1)}, resource: "apply.node",
		interval: time.Millisecond, timeout: testTimeout,
	}
}

// inspects checks machine 1, with these addresses in the state.
func inspects(t *testing.T, c *maintenance, recorded ...string) gate.Inspection {
	t.Helper()
	var known []gate.Known
	for _, address := range recorded {
		known = append(known, gate.Known{Address: address})
	}
	found, err := c.inspect(t.Context(), known, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

const configured = `apply.node["cp-01"]`

func TestMaintenanceAcceptsAnUnconfiguredMachine(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.bootNew(1)
	c := l.maintenance(testTimeout)
	if f := inspects(t, c); len(f.Foreign)+len(f.Unusable)+len(f.Lost)+len(f.Present)+len(f.Proof) > 0 {
		t.Errorf("of a machine that no state knows: %+v", f)
	}
	f := inspects(t, c, configured)
	if len(f.Lost) != 1 || f.Lost[0] != configured || len(f.Foreign) > 0 {
		t.Errorf("of a machine that was reset: %+v", f)
	}
	if len(f.Proof) != 1 || !f.Proof[0].Gone || f.Proof[0].ID != "cp-01" {
		t.Errorf("the proof: %+v", f.Proof)
	}
}

// TestMaintenanceLosesBootstrapWithTheLastControlPlane: with another control plane, a second bootstrap would
// found a second cluster.
func TestMaintenanceLosesBootstrapWithTheLastControlPlane(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.bootNew(1)
	c := l.maintenance(testTimeout)
	c.founders, c.founding = []string{"cp-01"}, "bootstrap.cluster"
	if f := inspects(t, c, configured, "bootstrap.cluster"); len(f.Lost) != 2 ||
		f.Lost[1] != "bootstrap.cluster" {
		t.Errorf("all were reset: %q", f.Lost)
	}
	c.endpoints["cp-02"], c.founders = l.address(2), []string{"cp-01", "cp-02"}
	ctx, end := context.WithCancel(t.Context())
	// The first report says that cp-02 does not answer; by then cp-01 has.
	f, err := c.inspect(ctx, []gate.Known{{Address: configured}, {Address: "bootstrap.cluster"}},
		func(string) { end() })
	if !errors.Is(err, context.Canceled) || len(f.Lost) != 1 {
		t.Errorf("one does not answer: %q, %v", f.Lost, err)
	}
}

func TestMaintenanceAcceptsAMachineWithTheClustersSecrets(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.configure(1, machine.TypeControlPlane)
	await(t, gate.Gate{Name: "running", Check: func(context.Context) error {
		if l.fleet.Stage(l.address(1)) != emulator.Running {
			return errors.New("not yet")
		}
		return nil
	}})
	for _, recorded := range [][]string{nil, {configured}} {
		f := inspects(t, l.maintenance(testTimeout), recorded...)
		if len(f.Foreign)+len(f.Unusable)+len(f.Lost) > 0 || len(f.Present) != 1 {
			t.Errorf("recorded %v: %+v", recorded, f)
		}
		if len(f.Proof) != 1 || f.Proof[0].Gone || f.Proof[0].Fix == "" {
			t.Errorf("a machine with this cluster's configuration is not gone: %+v", f.Proof)
		}
	}
}

func TestMaintenanceRejectsAnotherClustersMachine(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(1)
	answers(t, l.bootstrapped(1, role.Admin), true)
	others := newLab(t, emulator.Delays{})
	others.network = l.network
	f := inspects(t, others.maintenance(testTimeout))
	if len(f.Foreign) != 1 || f.Foreign[0].What != "machine cp-01 at "+l.address(1) ||
		!strings.HasPrefix(f.Foreign[0].Why, "runs with other Talos secrets") ||
		f.Foreign[0].ConflictsWith != "" || len(f.Proof) > 0 {
		t.Errorf("%+v", f)
	}
	f = inspects(t, others.maintenance(testTimeout), configured)
	if len(f.Foreign) != 1 || f.Foreign[0].ConflictsWith != configured || len(f.Proof) != 1 ||
		f.Proof[0].Gone {
		t.Errorf("where the state has the machine: %+v", f)
	}
}

// TestMaintenanceTakesAClosedConnectionForConfigured covers a race: Talos rejects a caller without a
// certificate and closes the connection, and its answer may not arrive.
func TestMaintenanceTakesAClosedConnectionForConfigured(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	unknown := httptest.NewTLSServer(nil) // for its certificate
	defer unknown.Close()
	door, err := net.Listen("tcp", net.JoinHostPort(l.address(1), "50000"))
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close() //nolint:errcheck // a test's listener
	go func() {
		for {
			raw, err := door.Accept()
			if err != nil {
				return
			}
			caller := tls.Server(raw, &tls.Config{
				Certificates: unknown.TLS.Certificates, ClientAuth: tls.RequestClientCert,
				NextProtos: []string{"h2"},
			})
			_ = caller.Handshake()              //nolint:errcheck // the test checks the caller
			_ = raw.(*net.TCPConn).SetLinger(0) //nolint:errcheck // it is about to be closed
			_ = raw.Close()                     //nolint:errcheck // rudely
		}
	}()
	c := l.maintenance(time.Millisecond)
	c.config = nil // no secrets yet: whatever has a configuration is another cluster's
	f := inspects(t, c)
	if len(f.Foreign) != 1 || !strings.HasPrefix(f.Foreign[0].Why, "runs with other Talos secrets") {
		t.Errorf("%+v", f)
	}
}

func TestMaintenanceWaitsForAMachineThatDoesNotAnswer(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	c := l.maintenance(20 * time.Millisecond)
	f := inspects(t, c)
	if len(f.Unusable) != 1 || f.Unusable[0].Why != "does not answer: connection refused" ||
		len(f.Unverified)+len(f.Proof) > 0 {
		t.Errorf("one that no state knows: %+v", f)
	}
	f = inspects(t, c, configured)
	if len(f.Unverified) != 1 || f.Unverified[0].Untrack != configured || len(f.Unusable) > 0 ||
		len(f.Proof) != 1 ||
		f.Proof[0].Gone {
		t.Errorf("one that the state has configured: %+v", f)
	}

	var reported []string
	waiting := l.maintenance(testTimeout)
	found, err := waiting.inspect(t.Context(), nil, func(text string) {
		if reported = append(reported, text); len(reported) == 1 {
			l.bootNew(1)
		}
	})
	if err != nil || len(found.Unusable) > 0 || reported[0] != "waiting for machine cp-01 at "+l.address(1)+
		": connection refused" {
		t.Errorf("one that is starting: %+v, %v, reported %q", found, err, reported)
	}
}

func TestMaintenanceStopsWhenCancelled(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	ctx, stop := context.WithCancel(t.Context())
	c := l.maintenance(testTimeout)
	if _, err := c.inspect(ctx, nil, func(string) { stop() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	soon, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if f, err := c.inspect(soon, nil, func(string) {}); err != nil || len(f.Unusable) != 1 {
		t.Errorf("out of time: %+v, %v", f, err)
	}
}

func TestMaintenanceDecodesItsArguments(t *testing.T) {
	kind := PreflightTypes()[0]
	text := cty.StringVal(base64.StdEncoding.EncodeToString([]byte("x")))
	values := gate.Values{
		"endpoints": cty.MapVal(map[string]cty.Value{"cp-01": cty.StringVal("127.0.0.1")}),
		"resource":  cty.StringVal("apply.node"),
		"client_configuration": cty.ObjectVal(map[string]cty.Value{"ca_certificate": text,
			"client_certificate": text, "client_key": text}),
	}
	if p, err := kind.New("talos_maintenance.machines", gate.Target{}, values); err != nil ||
		p.Inspect == nil {
		t.Error(err)
	}
	values["client_configuration"] = cty.ObjectVal(map[string]cty.Value{
		"ca_certificate": text, "client_certificate": text, "client_key": cty.StringVal("a key !"),
	})
	if _, err := kind.New("talos_maintenance.machines", gate.Target{}, values); err == nil ||
		strings.Contains(err.Error(), "a key") {
		t.Errorf("a key that is none: %v", err)
	}
}

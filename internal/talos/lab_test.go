package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// testTimeout bounds each wait of a test.
const testTimeout = 30 * time.Second

// lab is an emulated fleet, in a network of its own on the loopback, and the
// secrets of the cluster that is to run there.
type lab struct {
	fleet   *emulator.Fleet
	t       *testing.T
	network string
	secrets *secrets.Bundle
}

func newLab(t *testing.T, delays emulator.Delays) *lab {
	t.Helper()
	// As of Talos 1.7 the key of ServiceAccounts is RSA, and takes a second to make.
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_6)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, secrets: bundle, network: fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(256))}
	l.fleet = emulator.New(emulator.Config{
		Delays: delays,
		Hooks:  emulator.Hooks{OnError: func(a string, err error) { t.Errorf("machine %s: %v", a, err) }},
	})
	t.Cleanup(l.fleet.Close)
	return l
}

func (l *lab) address(n int) string { return fmt.Sprintf("%s.%d", l.network, 10+n) }

func (l *lab) addresses(n int) []string {
	var list []string
	for i := range n {
		list = append(list, l.address(i+1))
	}
	return list
}

func (l *lab) machine(n int) emulator.Machine {
	return emulator.Machine{Address: l.address(n), Name: fmt.Sprintf("blue-%02d", n)}
}

func (l *lab) bootNew(n int) {
	l.t.Helper()
	if err := l.fleet.Boot(l.machine(n)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) input(options ...generate.Option) *generate.Input {
	l.t.Helper()
	input, err := generate.NewInput("blue", "https://"+l.network+".210:6443", "1.36.3",
		append(options, generate.WithSecretsBundle(l.secrets))...)
	if err != nil {
		l.t.Fatal(err)
	}
	return input
}

func (l *lab) talosconfig(r role.Role, endpoints ...string) []byte {
	l.t.Helper()
	config, err := l.input(generate.WithRoles(role.MakeSet(r)),
		generate.WithEndpointList(endpoints)).Talosconfig()
	if err != nil {
		l.t.Fatal(err)
	}
	data, err := config.Bytes()
	if err != nil {
		l.t.Fatal(err)
	}
	return data
}

// configure boots machine n and applies a configuration as soon as it takes one.
func (l *lab) configure(n int, kind machine.Type) {
	l.t.Helper()
	l.configureOn(l.machine(n), kind)
}

func (l *lab) configureOn(m emulator.Machine, kind machine.Type) {
	l.t.Helper()
	config, err := l.input().Config(kind)
	if err != nil {
		l.t.Fatal(err)
	}
	if kind == machine.TypeControlPlane {
		patch := "apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: " + l.vip() + "\nlink: ens18\n"
		config = l.patched(config, patch)
	}
	data, err := config.Bytes()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.fleet.Boot(m); err != nil {
		l.t.Fatal(err)
	}
	l.retry(func(c *client.Client) error {
		_, err := c.ApplyConfiguration(l.t.Context(), &machineapi.ApplyConfigurationRequest{Data: data})
		return err
	}, client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), client.WithEndpoints(m.Address))
}

func (l *lab) patched(c config.Provider, patch string) config.Provider {
	l.t.Helper()
	patches, err := configpatcher.LoadPatches([]string{patch})
	if err != nil {
		l.t.Fatal(err)
	}
	output, err := configpatcher.Apply(configpatcher.WithConfig(c), patches)
	if err != nil {
		l.t.Fatal(err)
	}
	patched, err := output.Config()
	if err != nil {
		l.t.Fatal(err)
	}
	return patched
}

func (l *lab) bootstrap(n int) {
	l.t.Helper()
	config, err := l.input(generate.WithEndpointList([]string{l.address(n)})).Talosconfig()
	if err != nil {
		l.t.Fatal(err)
	}
	l.retry(func(c *client.Client) error {
		return c.Bootstrap(l.t.Context(), &machineapi.BootstrapRequest{})
	}, client.WithConfig(config))
}

// raise configures control planes 1…n and bootstraps the first.
func (l *lab) raise(n int) {
	l.t.Helper()
	for i := range n {
		l.configure(i+1, machine.TypeControlPlane)
	}
	l.bootstrap(1)
}

// retry calls fn with a new connection each time until it succeeds.
func (l *lab) retry(fn func(*client.Client) error, options ...client.OptionFunc) {
	l.t.Helper()
	await(l.t, gate.Gate{Name: "step", Check: func(ctx context.Context) error {
		c, err := client.New(ctx, options...)
		if err != nil {
			return gate.Permanent(err)
		}
		return errors.Join(fn(c), c.Close())
	}})
}

func await(t *testing.T, g gate.Gate) {
	t.Helper()
	if err := gate.Wait(t.Context(), g, gate.Policy{Timeout: testTimeout, First: time.Millisecond,
		Most: 20 * time.Millisecond}, gate.Listener{}); err != nil {
		t.Fatal(err)
	}
}

// says waits until the gate is closed for exactly this reason.
func says(t *testing.T, g gate.Gate, want string) {
	t.Helper()
	await(t, gate.Gate{Name: "reason", Check: func(ctx context.Context) error {
		switch err := g.Check(ctx); {
		case err == nil:
			return errors.New("the gate is open")
		case gate.IsPermanent(err):
			return gate.Permanent(fmt.Errorf("permanent: %w", err))
		case err.Error() != want:
			return fmt.Errorf("got %q, want %q", err, want)
		}
		return nil
	}})
}

func (l *lab) gate(voters int, talosconfig []byte) gate.Gate {
	l.t.Helper()
	g, err := etcdType().New("talos_etcd.members", gate.Target{Talosconfig: talosconfig},
		gate.Values{"voters": cty.NumberIntVal(int64(voters))})
	if err != nil {
		l.t.Fatal(err)
	}
	return g
}

// mute accepts connections on an address and never answers.
func (l *lab) mute(address string) {
	l.t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "50000"))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = listener.Close() })
}

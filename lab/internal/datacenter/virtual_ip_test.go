package datacenter

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosapi "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
)

// The second of two control planes stays a learner longer than usual, and takes the virtual address
// as soon as it votes. castle's own gates detect both.
func TestTheGatesSeeALearnerAndAMove(t *testing.T) {
	const first, second, vip = "127.0.8.11", "127.0.8.12", "127.0.8.10"
	d, log := start(t, Config{
		Faults: Faults{Times: map[string]time.Duration{"vip-moves": time.Millisecond,
			"etcd-learner": 100 * time.Millisecond}},
		Kubernetes: func(context.Context, controlplane.Order) (*controlplane.Process, error) {
			return nil, errors.New("not in this test")
		},
	})
	d.fleet.HoldLearner("cp-02")
	talosconfig := raise(t, d, vip, first, second)
	target := gate.Target{Talosconfig: talosconfig}
	etcd := bind(t, target, "talos_etcd", gate.Values{"voters": cty.NumberIntVal(2)})
	address := bind(t, target, "virtual_ip", gate.Values{"address": cty.StringVal(vip)})

	await(t, address)
	await(t, gate.Gate{Check: func(ctx context.Context) error {
		if err := etcd.Check(ctx); err == nil || err.Error() != "etcd: 1 of 2 voters, 1 learner (cp-02)" {
			return fmt.Errorf("etcd says %v", err)
		}
		return nil
	}})
	d.fleet.ReleaseLearner("cp-02") // from here on it is the fault's
	await(t, etcd)
	for _, line := range []string{"fault etcd-learner: begins", "fault etcd-learner: ends"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("talos_etcd is open, and the log lacks %q:\n%s", line, log)
		}
	}
	log.await(t, "fault vip-moves: ends", 1)
	if err := address.Check(t.Context()); err == nil ||
		!strings.HasSuffix(err.Error(), "moved from "+first+" to "+second) {
		t.Errorf("after the move: %v", err)
	}
	if err := address.Check(t.Context()); err != nil {
		t.Errorf("after the move, again: %v", err)
	}
}

func bind(t *testing.T, target gate.Target, kind string, values gate.Values) gate.Gate {
	t.Helper()
	for _, x := range talos.GateTypes() {
		if x.Name == kind {
			g, err := x.New(kind+".test", target, values)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
	}
	t.Fatalf("there is no gate %s", kind)
	return gate.Gate{}
}

func await(t *testing.T, g gate.Gate) {
	t.Helper()
	if err := gate.Wait(t.Context(), g, gate.Policy{Timeout: patience, First: time.Millisecond,
		Most: 20 * time.Millisecond}, gate.Listener{}); err != nil {
		t.Fatal(err)
	}
}

// raise boots control planes cp-01… at the addresses, configures them and
// bootstraps the first; it returns their talosconfig.
func raise(t *testing.T, d *Datacenter, vip string, addresses ...string) []byte {
	t.Helper()
	config, talosconfig := generated(t, vip, addresses...)
	boot(t, d, config, addresses...)
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	}, through(t, talosconfig, addresses[0])...)
	return talosconfig
}

// generated is the configuration of the control planes of a cluster, and its talosconfig.
func generated(t *testing.T, vip string, addresses ...string) (data, talosconfig []byte) {
	t.Helper()
	input, err := generate.NewInput("blue", "https://"+vip+":6443", "1.36.3",
		generate.WithEndpointList(addresses))
	if err != nil {
		t.Fatal(err)
	}
	config, err := input.Config(machine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	patches, err := configpatcher.LoadPatches([]string{"apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: " +
		vip + "\nlink: uplink\n"})
	if err != nil {
		t.Fatal(err)
	}
	patched, err := configpatcher.Apply(configpatcher.WithConfig(config), patches)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = patched.Bytes(); err != nil {
		t.Fatal(err)
	}
	client, err := input.Talosconfig()
	if err != nil {
		t.Fatal(err)
	}
	if talosconfig, err = client.Bytes(); err != nil {
		t.Fatal(err)
	}
	return data, talosconfig
}

// boot starts the VMs of control planes and configures them.
func boot(t *testing.T, d *Datacenter, data []byte, addresses ...string) {
	t.Helper()
	for i, a := range addresses {
		d.started(controlPlane(i, a))
		call(t, func(ctx context.Context, c *talosapi.Client) error {
			_, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: data})
			return err
		}, talosapi.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), talosapi.WithEndpoints(a))
	}
}

// controlPlane is the VM of a control plane.
func controlPlane(i int, address string) proxmox.VM {
	return proxmox.VM{ID: 421 + i, Name: fmt.Sprintf("cp-%02d", i+1), Image: "nocloud.img",
		Address: netip.MustParsePrefix(address + "/24")}
}

// call repeats fn, with a new connection each time, until it succeeds.
func call(t *testing.T, fn func(context.Context, *talosapi.Client) error, options ...talosapi.OptionFunc) {
	t.Helper()
	await(t, gate.Gate{Name: "call", Check: func(ctx context.Context) error {
		c, err := talosapi.New(ctx, options...)
		if err != nil {
			return gate.Permanent(err)
		}
		return errors.Join(fn(ctx, c), c.Close())
	}})
}

package talos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

const installer = "factory.talos.dev/nocloud-installer/abc:v1.13.1"

// versionGateOf is the gate of machines cp-01 and w-01.
func versionGateOf(l *lab, installer ...string) gate.Gate {
	l.t.Helper()
	g, err := versionType().New("talos_version.machines", gate.Target{
		Talosconfig: l.talosconfig(role.Reader, l.address(1))}, gate.Values{
		"version": cty.StringVal("v1.13.1"), "installers": cty.MapVal(map[string]cty.Value{
			"cp-01": cty.StringVal(installer[0]), "w-01": cty.StringVal(installer[len(installer)-1])}),
		"machines": cty.MapVal(map[string]cty.Value{
			"cp-01": cty.StringVal(l.address(1)), "w-01": cty.StringVal(l.address(2))}),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return g
}

// place configures machine n, which boots from an image of this release.
func place(l *lab, n int, kind machine.Type, release string) {
	l.t.Helper()
	m := l.machine(n)
	m.Version = release
	l.configureOn(m, kind)
}

func upgrade(l *lab, n int, image string) {
	l.t.Helper()
	config, err := l.input().Talosconfig()
	if err != nil {
		l.t.Fatal(err)
	}
	l.retry(func(c *client.Client) error {
		//lint:ignore SA1019 talosctl calls it for machines before v1.13, and they still know it
		_, err := c.MachineClient.Upgrade(l.t.Context(), &machineapi.UpgradeRequest{Image: image,
			Force: true}) // etcd was never bootstrapped
		return err
	}, client.WithConfig(config), client.WithEndpoints(l.address(n)))
}

// wants waits until the gate ends a wait with this text.
func wants(t *testing.T, g gate.Gate, text string) {
	t.Helper()
	err := gate.Wait(t.Context(), g, gate.Policy{Timeout: testTimeout, First: time.Millisecond},
		gate.Listener{})
	if !gate.IsPermanent(err) || gate.KindOf(err) != gate.UpgradeNeeded ||
		!strings.Contains(err.Error(), text) {
		t.Fatalf("got %v, want %q", err, text)
	}
}

// A machine keeps the release of its image, whatever its configuration says. castle waits for one that does
// not answer and for one that is being upgraded, and for nothing else.
func TestTalosVersionReadsWhatMachinesRun(t *testing.T) {
	l := newLab(t, emulator.Delays{Install: 2 * time.Second})
	g := versionGateOf(l, installer)
	says(t, g, "0 of 2 machines run Talos v1.13.1; "+l.address(1)+", "+l.address(2)+": connection refused")
	place(l, 1, machine.TypeControlPlane, "v1.13.0")
	place(l, 2, machine.TypeWorker, "v1.13.0")
	await(t, gate.Gate{Check: func(context.Context) error {
		if l.fleet.Stage(l.address(1)) != emulator.Running ||
			l.fleet.Stage(l.address(2)) != emulator.Running {
			return errors.New("they install themselves")
		}
		return nil
	}})
	wants(t, g, "Talos v1.13.1 is wanted; v1.13.0 runs on cp-01 ("+l.address(1)+"), w-01 ("+l.address(2)+
		`); castle rollout upgrades one machine after the other; or set talos_version = "v1.13.0" again; or `+
		"castle recreate")
	explains(t, g, "a machine keeps the Talos of its disk", "castle rollout")

	upgrade(l, 1, installer)
	await(t, gate.Gate{Check: func(ctx context.Context) error {
		if err := g.Check(ctx); err == nil || strings.Contains(err.Error(), l.address(1)) {
			return fmt.Errorf("cp-01 is being upgraded: %v", err)
		}
		return nil
	}})
	upgrade(l, 2, installer)
	says(t, g, "Talos v1.13.1 is wanted; v1.13.0 runs on w-01 ("+l.address(2)+"), being upgraded")
	await(t, g)

	l.fleet.Halt(l.address(2))
	says(t, g, "1 of 2 machines run Talos v1.13.1; "+l.address(2)+": connection refused")
}

// The same release with other extensions is another system.
func TestTalosVersionComparesSchematics(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	image := func(digit string) string {
		return "factory.talos.dev/nocloud-installer/" + strings.Repeat(digit, 64) + ":v1.13.1"
	}
	g := versionGateOf(l, image("a"))
	for n, kind := range map[int]machine.Type{1: machine.TypeControlPlane, 2: machine.TypeWorker} {
		place(l, n, kind, "v1.13.0")
	}
	for n, digit := range map[int]string{1: "a", 2: "b"} {
		upgrade(l, n, image(digit))
	}
	other := strings.Repeat("b", 64)
	await(t, gate.Gate{Check: func(ctx context.Context) error {
		if err := g.Check(ctx); gate.KindOf(err) != gate.UpgradeNeeded ||
			strings.Contains(err.Error(), "v1.13.0") {
			return fmt.Errorf("they are being upgraded: %v", err)
		}
		return nil
	}})
	wants(t, g, "with the schematic "+other+" runs on w-01 ("+l.address(2)+"); castle rollout upgrades one "+
		`machine after the other; or set talos_schematic_id = "`+other+`" or the former `+
		"talos_extensions again; or castle recreate")
}

// Machines may have different images: each is compared with its own.
func TestTalosVersionComparesEachMachineWithItsOwnInstaller(t *testing.T) {
	image := func(digit string) string {
		return "factory.talos.dev/nocloud-installer/" + strings.Repeat(digit, 64) + ":v1.13.1"
	}
	l := newLab(t, emulator.Delays{})
	for n, kind := range map[int]machine.Type{1: machine.TypeControlPlane, 2: machine.TypeWorker} {
		place(l, n, kind, "v1.13.0")
	}
	for n, digit := range map[int]string{1: "a", 2: "b"} {
		upgrade(l, n, image(digit))
	}
	await(t, versionGateOf(l, image("a"), image("b")))
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	wants(t, versionGateOf(l, image("b"), image("a")), "with the schematic "+a+" or "+b+
		" is wanted; v1.13.1 with the schematic "+a+" runs on cp-01")
}

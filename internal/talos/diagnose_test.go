package talos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// explains waits until the gate's diagnosis has the cause and the command.
func explains(t *testing.T, g gate.Gate, cause, look string) (d gate.Diagnosis) {
	t.Helper()
	await(t, gate.Gate{Name: "diagnosis", Check: func(ctx context.Context) error {
		if d = g.Diagnose(ctx, nil); !strings.Contains(d.Cause, cause) || d.Look != look {
			return fmt.Errorf("got cause %q and look %q, want %q and %q", d.Cause, d.Look, cause, look)
		}
		return nil
	}})
	return d
}

// holds fails unless the file holds every one of the parts.
func holds(t *testing.T, d gate.Diagnosis, file string, parts ...string) {
	t.Helper()
	text, there := d.Files[file]
	if !there {
		t.Errorf("no %s, only %v", file, slices.Sorted(maps.Keys(d.Files)))
		return
	}
	for _, part := range parts {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s lacks %q:\n%s", file, part, text)
		}
	}
}

func TestDiagnosisReportsEveryMachineWithoutSecrets(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.fleet.HoldLearner("blue-02")
	l.raise(3)
	g := l.gate(3, l.talosconfig(role.Reader, l.addresses(3)...))
	says(t, g, "etcd: 1 of 3 voters, 1 learner (blue-02); "+l.address(3)+": etcd does not run yet")
	await(t, l.vipGate(l.talosconfig(role.Reader, l.address(1))))
	d := explains(t, g, "blue-02 stays a learner", "talosctl -n "+l.address(2)+" logs etcd")
	folder := "talos/" + l.address(1) + "/"
	holds(t, d, folder+"services.txt", "apid        Running  OK", "etcd        Running  OK")
	holds(t, d, folder+"etcd.txt", "leader", "blue-01", "blue-02  true", "https://"+l.address(2)+":2380")
	holds(t, d, folder+"addresses.txt", "ens18  "+l.address(1)+"/24", "ens18  "+l.vip()+"/32", "links: ens18")
	holds(t, d, "talos/"+l.address(2)+"/services.txt", "EVENTS OF etcd",
		"Running    Health check failed: etcdserver: rpc not supported for learner")
	holds(t, d, "talos/"+l.address(3)+"/services.txt", "etcd        Preparing  ?       Running pre state")
	holds(t, d, "talos/"+l.address(3)+"/etcd.txt", "no answer: etcd does not run yet")
	for name, text := range d.Files {
		if strings.Contains(string(text), "PRIVATE KEY") || strings.Contains(string(text),
			l.secrets.TrustdInfo.Token) {
			t.Errorf("%s holds a secret", name)
		}
	}
}

func TestDiagnosisNamesTheLikelyCause(t *testing.T) {
	l := newLab(t, emulator.Delays{Session: time.Hour})
	one, two := l.talosconfig(role.Reader, l.address(1)), l.talosconfig(role.Reader, l.addresses(2)...)
	l.configure(1, machine.TypeControlPlane)
	service := "talosctl -n " + l.address(1) + " service etcd"
	if d := explains(t, l.gate(1, one), "etcd was never bootstrapped",
		service); d.Kind != gate.NeverBootstrapped {
		t.Errorf("got kind %q", d.Kind)
	}
	explains(t, l.vipGate(one), "elect the holder through etcd, and etcd was never bootstrapped", service)

	l.bootstrap(1)
	await(t, l.vipGate(one))
	l.configure(2, machine.TypeControlPlane)
	etcd, address := l.gate(2, two), l.vipGate(two)
	await(t, etcd)
	explains(t, address, "its holder restarts, or loses its etcd session",
		"talosctl -n "+l.address(1)+" logs controller-runtime")
	if err := l.fleet.RaiseAlarm("blue-01", "NOSPACE"); err != nil {
		t.Fatal(err)
	}
	explains(t, etcd, "etcd's database is full", "talosctl -n "+l.address(1)+" etcd alarm list")

	l.fleet.Halt(l.address(2))
	d := explains(t, etcd, l.address(2)+" is off, boots or installs itself",
		"talosctl -n "+l.address(2)+" version")
	holds(t, d, "talos/"+l.address(2)+"/services.txt", "no answer: connection refused")
	explains(t, address, l.address(2)+" is off, boots or installs itself",
		"talosctl -n "+l.address(2)+" version")
	l.fleet.Remove(l.address(2))
	l.bootNew(2)
	explains(t, etcd, l.address(2)+" waits for its configuration",
		"talosctl -n "+l.address(2)+" get machinestatus --insecure")
}

func TestDiagnosisListsLinksWhereTheVirtualAddressIsMissing(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.configureOn(emulator.Machine{Address: l.address(1), Name: "blue-01", Links: []string{"eth0"}},
		machine.TypeControlPlane)
	l.bootstrap(1)
	config := l.talosconfig(role.Reader, l.address(1))
	await(t, l.gate(1, config))
	explains(t, l.vipGate(config), "or a link that the machines do not have (theirs: eth0)",
		"talosctl -n "+l.address(1)+" get links")
}

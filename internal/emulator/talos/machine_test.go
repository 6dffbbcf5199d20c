package talos_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

func TestNothingListensWhileAMachineBoots(t *testing.T) {
	l := newLab(t)
	address := l.bootNew(1)
	_, err := l.anyone(address).Version(within(t))
	wantRefusal(t, err, codes.Unavailable, "connection refused")
	l.clock.advance(step)
	if _, err := l.anyone(address).Version(within(t)); err != nil {
		t.Errorf("once it has booted: %v", err)
	}
}

func TestMaintenanceModeAllowsReadsAndAConfigurationOnly(t *testing.T) {
	l := newLab(t)
	address := l.bootNew(1)
	l.clock.advance(step)
	c := l.anyone(address)
	if disks, err := c.Disks(within(t)); err != nil || len(disks.GetMessages()[0].GetDisks()) == 0 {
		t.Errorf("disks: %v, %v", disks, err)
	}
	_, err := c.Kubeconfig(within(t))
	wantRefusal(t, err, codes.PermissionDenied, "not authorized")
	wantRefusal(t, c.Bootstrap(within(t), &machineapi.BootstrapRequest{}), codes.PermissionDenied,
		"not authorized")
	wantRefusal(t, c.Reset(within(t), false, true), codes.PermissionDenied, "not authorized")

	// A client that insists on the cluster's CA does not get that far.
	_, err = l.as(role.Admin, address).Version(within(t))
	wantRefusal(t, err, codes.Unavailable, "certificate signed by unknown authority")
}

func TestConfiguredMachineAcceptsOnlyClientsOfItsCA(t *testing.T) {
	l := newLab(t)
	address := l.bootNew(1)
	l.clock.advance(step)
	if err := l.apply(address, l.machineConfig(machine.TypeControlPlane)); err != nil {
		t.Fatal(err)
	}
	_, err := l.anyone(address).Version(within(t))
	wantRefusal(t, err, codes.Unavailable, "connection refused") // it installs itself
	l.clock.advance(step)

	// A client that writes first may see only a closed connection; one that reads gets the alert.
	_, err = l.anyone(address).Disks(within(t))
	wantRefusal(t, err, codes.Unavailable, "")
	if err := listen(t, address); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: got %v, want the alert \"certificate required\"", err)
	}
	if _, err := l.as(role.Admin, address).Version(within(t)); err != nil {
		t.Errorf("with the cluster's talosconfig: %v", err)
	}
	wantRefusal(t, l.as(role.Reader, address).Bootstrap(within(t), &machineapi.BootstrapRequest{}),
		codes.PermissionDenied, "not authorized")
	_, err = l.as(role.Reader, address).ApplyConfiguration(within(t),
		&machineapi.ApplyConfigurationRequest{Data: l.machineConfig(machine.TypeControlPlane)})
	wantRefusal(t, err, codes.PermissionDenied, "not authorized")

	foreign := newLab(t)
	_, err = foreign.as(role.Admin, address).Version(within(t))
	wantRefusal(t, err, codes.Unavailable, "certificate signed by unknown authority")
}

// listen connects without a client certificate and returns the machine's answer.
func listen(t *testing.T, address string) error {
	t.Helper()
	//nolint:gosec // the test does not check the machine's certificate
	conn, err := tls.Dial("tcp", net.JoinHostPort(address, "50000"), &tls.Config{InsecureSkipVerify: true,
		NextProtos: []string{"h2"}})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.ReadAll(conn)
	return err
}

// serverNames are the names in the certificate of a machine's API.
func (l *lab) serverNames(address string) string {
	l.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(l.secrets.Certs.OS.Crt)
	conn, err := tls.Dial("tcp", net.JoinHostPort(address, "50000"), &tls.Config{RootCAs: roots})
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return strings.Join(conn.ConnectionState().PeerCertificates[0].DNSNames, ", ")
}

func TestServerCertificateNamesTheMachine(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	if got := l.serverNames(l.address(1)); got != "blue-01" {
		t.Errorf("the certificate names %s", got)
	}
}

func TestConfigurationsAreValidatedAsByTalos(t *testing.T) {
	l := newLab(t)
	address := l.bootNew(1)
	l.clock.advance(step)
	vip := `{"machine": {"network": {"interfaces": [{"interface": "eth0", "vip": {"ip": "192.168.1.210"}}]}}}`
	wantRefusal(t, l.apply(address, l.machineConfig(machine.TypeWorker, vip)),
		codes.InvalidArgument, "virtual (shared) IP is not allowed on non-controlplane nodes")
	wantRefusal(t, l.apply(address, []byte("machine: {type: king}\n")), codes.InvalidArgument, "")
	wantRefusal(t, l.apply(address, []byte("")), codes.InvalidArgument, "config not found")
	if got := l.fleet.Stage(address); got != talos.Maintenance {
		t.Errorf("after the refusals the machine is %s", got)
	}
	if err := l.apply(address, l.machineConfig(machine.TypeControlPlane, vip)); err != nil {
		t.Errorf("a control plane may have a virtual address: %v", err)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	l := newLab(t)
	address := l.bootNew(1)
	l.clock.advance(step)
	resp, err := l.anyone(address).ApplyConfiguration(within(t),
		&machineapi.ApplyConfigurationRequest{Data: l.machineConfig(machine.TypeControlPlane), DryRun: true})
	if err != nil || !strings.Contains(resp.GetMessages()[0].GetModeDetails(), "skipped in dry-run") {
		t.Errorf("got %v, %v", resp, err)
	}
	l.clock.advance(step)
	if got := l.fleet.Stage(address); got != talos.Maintenance {
		t.Errorf("the machine is %s", got)
	}
}

func TestWorkerWaitsForAControlPlaneToSignItsCertificate(t *testing.T) {
	l := newLab(t)
	worker, cp := l.bootNew(2), l.bootNew(1)
	l.clock.advance(step)
	if err := l.apply(worker, l.machineConfig(machine.TypeWorker)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	if got := l.fleet.Stage(worker); got != talos.Booting {
		t.Fatalf("without a control plane the worker is %s", got)
	}
	if err := l.apply(cp, l.machineConfig(machine.TypeControlPlane)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	if _, err := l.as(role.Admin, worker).Version(within(t)); err != nil {
		t.Errorf("with a control plane: %v", err)
	}
}

func TestDisksSurviveAPowerCutButNotRemoval(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	address := l.address(1)
	l.fleet.Halt(address)
	_, err := l.anyone(address).Version(within(t))
	wantRefusal(t, err, codes.Unavailable, "connection refused")
	l.bootNew(1)
	l.clock.advance(2 * step)
	if got := l.fleet.Stage(address); got != talos.Running {
		t.Errorf("after a power cut the machine is %s", got)
	}
	l.fleet.Remove(address)
	l.bootNew(1)
	l.clock.advance(2 * step)
	if got := l.fleet.Stage(address); got != talos.Maintenance {
		t.Errorf("with a new disk the machine is %s", got)
	}
}

func TestPowerCutCancelsPendingSteps(t *testing.T) {
	l := newLab(t)
	address := l.bootNew(1)
	l.fleet.Halt(address)
	l.clock.advance(2 * step)
	if got := l.fleet.Stage(address); got != talos.Off {
		t.Errorf("a machine that was switched off while it booted is %s", got)
	}
}

func TestResetWipesAndShutdownCallsTheHook(t *testing.T) {
	l := newLab(t)
	l.raise(1, 1)
	if err := l.as(role.Admin, l.address(2)).Reset(within(t), true, true); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	if got := l.fleet.Stage(l.address(2)); got != talos.Maintenance {
		t.Errorf("after a reset the machine is %s", got)
	}
	if err := l.as(role.Admin, l.address(1)).Shutdown(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := l.fleet.Stage(l.address(1)); got != talos.Off || len(l.shutDown) != 1 ||
		l.shutDown[0] != l.address(1) {
		t.Errorf("after a shutdown the machine is %s, and the hook got %v", got, l.shutDown)
	}
}

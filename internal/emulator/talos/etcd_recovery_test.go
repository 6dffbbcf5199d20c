package talos_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// snapshot reads a snapshot through a machine as talosctl does.
func (l *lab) snapshot(r role.Role, address string) ([]byte, error) {
	l.t.Helper()
	stream, err := l.as(r, address).EtcdSnapshot(within(l.t), &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return io.ReadAll(stream)
}

func (l *lab) upload(address, snapshot string) error {
	l.t.Helper()
	_, err := l.as(role.Admin, address).EtcdRecover(within(l.t), strings.NewReader(snapshot))
	return err
}

func (l *lab) recoverEtcd(address string, skipHashCheck bool) error {
	l.t.Helper()
	return l.as(role.Admin, address).Bootstrap(within(l.t),
		&machineapi.BootstrapRequest{RecoverEtcd: true, RecoverSkipHashCheck: skipHashCheck})
}

// etcdService is the state of etcd's service and its last message.
func (l *lab) etcdService(address string) string {
	l.t.Helper()
	list, err := l.as(role.Admin, address).ServiceList(within(l.t))
	if err != nil {
		return err.Error()
	}
	for _, s := range list.GetMessages()[0].GetServices() {
		if s.GetId() == "etcd" {
			events := s.GetEvents().GetEvents()
			return s.GetState() + ": " + events[len(events)-1].GetMsg()
		}
	}
	return "no etcd"
}

// wipe resets partitions, by label, and waits until the machine is up again.
func (l *lab) wipe(address string, graceful bool, labels ...string) {
	l.t.Helper()
	req := &machineapi.ResetRequest{Graceful: graceful, Reboot: true}
	for _, label := range labels {
		req.SystemPartitionsToWipe = append(req.SystemPartitionsToWipe,
			&machineapi.ResetPartitionSpec{Label: label, Wipe: true})
	}
	if err := l.as(role.Admin, address).ResetGeneric(within(l.t), req); err != nil {
		l.t.Fatal(err)
	}
	l.clock.advance(step/2 + 2*step)
}

func TestASnapshotIsTheDatabaseOfTheLocalMember(t *testing.T) {
	l := newLab(t)
	l.fleet.HoldLearner("blue-02")
	l.raise(2, 1)
	_, err := l.snapshot(role.Admin, l.address(1))
	wantRefusal(t, err, codes.Unavailable, "connection refused")
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	for _, n := range []int{1, 2} { // the second is a learner
		data, err := l.snapshot(role.EtcdBackup, l.address(n))
		if err != nil || string(data) != "database of "+l.address(n) {
			t.Errorf("machine %d: %q, %v", n, data, err)
		}
	}
	_, err = l.snapshot(role.Reader, l.address(1))
	wantRefusal(t, err, codes.PermissionDenied, "not authorized")
	_, err = l.snapshot(role.Admin, l.address(3))
	wantRefusal(t, err, codes.Unimplemented, "etcd snapshot is only available on control plane nodes")
	broken := errors.New("etcdserver: server stopped")
	l.database = func(string) (io.Reader, error) { return nil, broken }
	_, err = l.snapshot(role.Admin, l.address(1))
	wantRefusal(t, err, codes.Unknown, "failed reading etcd snapshot: etcdserver: server stopped")
	l.database = func(string) (io.Reader, error) {
		return io.MultiReader(bytes.NewReader([]byte("half")), iotest.ErrReader(broken)), nil
	}
	if data, err := l.snapshot(role.Admin, l.address(1)); err != nil || string(data) != "half" {
		t.Errorf("an etcd that ends meanwhile: %q, %v", data, err)
	}
}

func TestASnapshotIsUploadedToAReadyControlPlane(t *testing.T) {
	l := newLab(t)
	cp, worker := l.bootNew(1), l.bootNew(2)
	l.clock.advance(step)
	for address, kind := range map[string]machine.Type{cp: machine.TypeControlPlane,
		worker: machine.TypeWorker} {
		if err := l.apply(address, l.machineConfig(kind)); err != nil {
			t.Fatal(err)
		}
	}
	l.clock.advance(step)
	wantRefusal(t, l.upload(cp, "kept"), codes.FailedPrecondition,
		"etcd service is not ready for recovery yet")
	l.clock.advance(step)
	wantRefusal(t, l.upload(worker, "kept"), codes.Unimplemented,
		"etcd recover is only available on control plane nodes")
	_, err := l.as(role.Operator, cp).EtcdRecover(within(t), strings.NewReader("kept"))
	wantRefusal(t, err, codes.PermissionDenied, "not authorized")
	for _, snapshot := range []string{"earlier", "kept"} {
		if err := l.upload(cp, snapshot); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.as(role.Admin, cp).Reboot(within(t)); err != nil { // the snapshot is on the disk
		t.Fatal(err)
	}
	l.clock.advance(3 * step)
	if err := l.recoverEtcd(cp, false); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, l.recoverEtcd(cp, false), codes.AlreadyExists, "etcd data directory is not empty")
	l.clock.advance(3 * step)
	if !slices.Equal(l.recovered, []string{cp + ": kept"}) || l.members(cp) != "blue-01" ||
		len(l.bootstraps) != 1 || !l.bootstraps[0].Recovered {
		t.Errorf("recovered %q, members %s, %d bootstraps", l.recovered, l.members(cp), len(l.bootstraps))
	}
}

func TestARecoveryThatFailsShowsInTheServiceAlone(t *testing.T) {
	l := newLab(t)
	l.raise(2, 0)
	one, two := l.address(1), l.address(2)
	if err := l.recoverEtcd(one, false); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	if got := l.etcdService(one); got != "Failed: Failed to run pre stage: error verifying snapshot: stat "+
		"/var/lib/etcd.snapshot: no such file or directory" {
		t.Errorf("without a snapshot: %s", got)
	}
	bad := func(written bool) {
		t.Helper()
		l.written = written
		if err := errors.Join(l.upload(one, "bad"), l.recoverEtcd(one, false)); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(step)
		if got := l.etcdService(one); got != "Failed: Failed to run pre stage: error recovering from the "+
			"snapshot: expected sha256 1, got 2" {
			t.Errorf("a bad one: %s", got)
		}
	}
	bad(false)
	bad(true) // it is refused after it was copied to the data directory
	wantRefusal(t, l.recoverEtcd(one, true), codes.AlreadyExists, "etcd data directory is not empty")
	if err := l.as(role.Admin, one).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(3 * step)
	wantRefusal(t, l.bootstrap(one), codes.AlreadyExists, "etcd data directory is not empty")
	l.wipe(one, false, "EPHEMERAL")
	if got := l.etcdService(one); got != "Preparing: Running pre state" {
		t.Errorf("wiped: %s", got)
	}
	if err := errors.Join(l.upload(one, "bad"), l.recoverEtcd(one, true)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	if got := l.members(two); got != "blue-01, blue-02" { // the other one joins, and is promoted
		t.Errorf("members: %s", got)
	}
}

func TestAResetWipesThePartitionsOfTheRequest(t *testing.T) {
	l := newLab(t)
	l.quorum(3, 0)
	one := l.address(1)
	_, err := l.as(role.Admin, one).MachineClient.Reset(within(t), &machineapi.ResetRequest{
		SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "ephemeral", Wipe: true}}})
	wantRefusal(t, err, codes.Unknown, `failed to get volume status with label "ephemeral"`)
	l.wipe(one, false, "EPHEMERAL")
	if got := l.members(l.address(2)); got != "blue-02, blue-03, ? learner" { // it keeps its configuration
		t.Errorf("without its data: %s", got)
	}
	l.clock.advance(3 * step)
	if got := l.members(one); got != "blue-02, blue-03, blue-01" {
		t.Errorf("it has rejoined: %s", got)
	}
	l.wipe(one, true, "EPHEMERAL", "STATE")
	if got := l.fleet.Stage(one); got != talos.Maintenance {
		t.Errorf("without its configuration: %s", got)
	}
	if got := l.members(l.address(2)); got != "blue-02, blue-03" {
		t.Errorf("it has left etcd first: %s", got)
	}
	l.wipe(l.address(3), false, "STATE")
	if err := l.apply(l.address(3), l.machineConfig(machine.TypeControlPlane)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	if got := l.members(l.address(3)); got != "blue-02, blue-03" { // its data was on EPHEMERAL
		t.Errorf("with the configuration again: %s", got)
	}
	want := []string{one + " data", one + " data", l.address(3)}
	if !slices.Equal(l.wiped, want) {
		t.Errorf("wiped %q, want %q", l.wiped, want)
	}
}

func TestAGracefulResetNeedsAQuorum(t *testing.T) {
	l := newLab(t)
	l.quorum(3, 0)
	one := l.address(1)
	l.fleet.Remove(l.address(2))
	if len(l.quorums) != 0 {
		t.Fatalf("two of three: %v", l.quorums)
	}
	l.fleet.Remove(l.address(3))
	if data, err := l.snapshot(role.Admin, one); err != nil || len(data) == 0 {
		t.Errorf("a snapshot without a quorum: %q, %v", data, err)
	}
	l.wipe(one, true, "EPHEMERAL")
	if got := l.members(one); !strings.Contains(got, "etcdserver: no leader") || len(l.wiped) != 0 {
		t.Errorf("it has restarted, and has its data: %s; wiped %q", got, l.wiped)
	}
	l.wipe(one, false, "EPHEMERAL")
	if err := errors.Join(l.upload(one, "kept"), l.recoverEtcd(one, false)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(3 * step)
	if len(l.bootstraps) != 2 || !slices.Equal(l.quorums, []bool{false}) {
		t.Errorf("%d bootstraps, quorum %v", len(l.bootstraps), l.quorums)
	}
}

func TestALostQuorumThatReturnsIsReported(t *testing.T) {
	l := newLab(t)
	l.quorum(2, 0)
	l.fleet.Halt(l.address(2))
	l.bootNew(2)
	l.clock.advance(3 * step)
	if !slices.Equal(l.quorums, []bool{false, true}) {
		t.Errorf("quorum: %v", l.quorums)
	}
}

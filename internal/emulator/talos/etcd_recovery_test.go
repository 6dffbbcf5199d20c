package talos_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
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

func TestASnapshotNeedsNoQuorum(t *testing.T) {
	l := newLab(t)
	l.quorum(3, 0)
	l.fleet.Remove(l.address(2))
	l.fleet.Remove(l.address(3))
	if data, err := l.snapshot(role.Admin, l.address(1)); err != nil || len(data) == 0 {
		t.Errorf("%q, %v", data, err)
	}
}

package talos

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// EtcdSnapshot sends the database of the target's own member, which needs no quorum and may be a learner
// (etcd: newStreamInterceptor in server/etcdserver/api/v3rpc/interceptor.go). Talos hides an error of etcd
// that comes later: the stream ends there (pkg/chunker/stream/stream.go).
func (s *machineService) EtcdSnapshot(req *pb.EtcdSnapshotRequest, out pb.MachineService_EtcdSnapshotServer,
) error {
	unlock := s.world.lock()
	m, snapshot := requestOf(out.Context()).Target, s.world.config.Hooks.Snapshot
	_, err := localMember(m, "etcd snapshot")
	address := m.spec.Address
	unlock()
	switch {
	case err != nil:
		return err
	case snapshot == nil:
		return s.UnimplementedMachineServiceServer.EtcdSnapshot(req, out)
	}
	database, err := snapshot(out.Context(), address)
	if err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}
	defer database.Close() //nolint:errcheck // it was read to its end, or its reader has gone
	for chunk := make([]byte, 32<<10); ; {
		n, failed := database.Read(chunk)
		if n != 0 {
			if err := out.SendMsg(&common.Data{Bytes: chunk[:n]}); err != nil {
				return err
			}
		}
		if failed != nil {
			return nil
		}
	}
}

// EtcdRecover keeps a snapshot on the disk, in place of an earlier one. Talos neither looks at it nor asks
// what etcd does: it needs a place for the file.
func (s *machineService) EtcdRecover(in pb.MachineService_EtcdRecoverServer) error {
	unlock := s.world.lock()
	m := requestOf(in.Context()).Target
	life, ready, controlPlane := m.life, m.ready, m.controlPlane()
	unlock()
	switch {
	case !ready:
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	case !controlPlane:
		return onlyOnControlPlanes("etcd recover")
	}
	var snapshot bytes.Buffer
	for {
		part, err := in.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		snapshot.Write(part.GetBytes())
	}
	unlock = s.world.lock()
	same := m.life == life
	if same {
		m.snapshot = snapshot.Bytes()
	}
	unlock()
	if !same {
		return status.Error(codes.Unavailable, "transport is closing")
	}
	return in.SendAndClose(&pb.EtcdRecoverResponse{Messages: []*pb.EtcdRecover{{}}})
}

// recovery is the start of etcd from the uploaded snapshot, from the bootstrap on.
type recovery struct {
	failed  string // why the service etcd has failed; empty until it has
	written bool   // something is in etcd's data directory, or about to be
}

// spoilt reports whether the disk keeps what a failed recovery has left: nothing but a wipe helps then.
func (r *recovery) spoilt() bool { return r.failed != "" && r.written }

// hasData reports whether etcd's data directory has content.
func (m *machine) hasData() bool { return m.etcd != nil || m.recovery != nil && m.recovery.written }

// recover makes the machine the only member of a new cluster with the content of the snapshot that it was
// sent (internal/app/machined/pkg/system/services/etcd.go, recoverFromSnapshot).
func (d *etcd) recover(m *machine, skipHashCheck bool) {
	r := &recovery{written: true}
	m.recovery = r
	d.world.after(m, d.world.config.Delays.Etcd, func() {
		life, snapshot, address := m.life, m.snapshot, m.spec.Address
		d.world.later(func() {
			written, err := false, errors.New("error verifying snapshot: stat /var/lib/etcd.snapshot: no "+
				"such file or directory")
			if snapshot != nil {
				written, err = d.world.config.Hooks.Recover(address, snapshot, skipHashCheck)
			}
			defer d.world.lock()()
			switch {
			case m.life != life || m.recovery != r: // it has restarted
			case err != nil:
				r.failed, r.written = "Failed to run pre stage: "+err.Error(), written
			default:
				m.recovery, m.snapshot = nil, nil
				m.etcd = (&etcdCluster{recovered: true}).add(m, false)
				d.startMember(m.etcd)
			}
		})
	})
}

// reportQuorum calls OnQuorum for the announced clusters that have lost their quorum, or have one again.
func (d *etcd) reportQuorum() {
	for ca, c := range d.announced {
		if lost := c.elect() == 0; lost != c.lost {
			c.lost = lost
			callLater(d.world, d.world.config.Hooks.OnQuorum, d.kubernetesCA(ca))
		}
	}
}

// HasQuorum reports whether the etcd of the cluster with that Kubernetes CA has a quorum now. It calls no
// hook.
func (f *Fleet) HasQuorum(kubernetesCA []byte) bool {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	for ca, c := range f.etcd.announced {
		if bytes.Equal(f.etcd.kubernetesCA(ca), kubernetesCA) && c.elect() != 0 {
			return true
		}
	}
	return false
}

// kubernetesCA is the certificate of the Kubernetes CA that the machines of a cluster have.
func (d *etcd) kubernetesCA(ca string) []byte {
	for _, m := range d.world.machines {
		if m.controlPlane() && m.installed.CA == ca && m.installed.Provider.Cluster().IssuingCA() != nil {
			return m.installed.Provider.Cluster().IssuingCA().Crt
		}
	}
	return nil
}

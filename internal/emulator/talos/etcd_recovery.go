package talos

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// EtcdSnapshot sends the database of the target's own member, which needs no quorum and may be a learner
// (etcd: newStreamInterceptor in server/etcdserver/api/v3rpc/interceptor.go). Talos hides an error of etcd
// that comes later: the stream ends there (pkg/chunker/stream/stream.go).
func (s *machineService) EtcdSnapshot(req *pb.EtcdSnapshotRequest, out pb.MachineService_EtcdSnapshotServer,
) error {
	unlock := s.world.lock()
	m, snapshot := requestOf(out.Context()).target, s.world.config.Hooks.Snapshot
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

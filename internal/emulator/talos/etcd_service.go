package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/apid"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/etcd"
)

// host is a machine as etcd sees it.
type host struct {
	world   *world
	machine *machine
}

func (h host) Address() string    { return h.machine.spec.Address }
func (h host) Hostname() string   { return h.machine.hostname() }
func (h host) Ready() bool        { return h.machine.ready }
func (h host) ControlPlane() bool { return h.machine.controlPlane() }
func (h host) Life() int          { return h.machine.life }

func (h host) CA() string {
	if h.machine.installed == nil {
		return ""
	}
	return h.machine.installed.CA
}

func (h host) After(d time.Duration, fn func()) { h.world.after(h.machine, d, fn) }

// VirtualIPs leaves out those on links that the machine does not have: Talos waits for them silently.
func (h host) VirtualIPs() (all []netip.Addr) {
	for _, v := range h.machine.installed.VirtualIPs() {
		if h.machine.reaches(h.machine.installed.Provider, v.Link) {
			all = append(all, v.Address)
		}
	}
	return all
}

func (h host) Assign(address netip.Prefix) {
	h.machine.resources.AddAddress(h.machine.uplink(), address)
}

func (h host) Withdraw(address netip.Prefix) {
	h.machine.resources.DropAddress(h.machine.uplink(), address)
}

// etcdConfig is what etcd needs of the fleet.
func (w *world) etcdConfig() etcd.Config {
	delays, hooks := w.config.Delays, w.config.Hooks
	return etcd.Config{
		Delays: etcd.Delays{Start: delays.Etcd, Join: delays.Join, Promote: delays.Promote,
			Announce: delays.Kubernetes, Campaign: delays.Campaign, Session: delays.Session},
		Lock: w.lock, Later: w.later, InTime: w.inTime, AfterFunc: w.config.AfterFunc,
		Closed:   func() bool { return w.closed },
		OnQuorum: func(ca string) { callLater(w, hooks.OnQuorum, w.kubernetesCA(ca)) },
		OnStart: func(address string, recovered bool) {
			spec := w.find(address).installed.ClusterSpec()
			spec.Recovered = recovered
			callLater(w, hooks.OnBootstrap, spec)
		},
		OnVirtualIP: func(virtual, holder string) {
			if hooks.OnVirtualIP != nil {
				w.later(func() { hooks.OnVirtualIP(virtual, holder) })
			}
		},
		Recover: hooks.Recover, DatabaseSize: hooks.DatabaseSize,
	}
}

// EtcdMemberList and the calls below it are those to etcd.
func (s *machineService) EtcdMemberList(ctx context.Context, req *pb.EtcdMemberListRequest) (
	*pb.EtcdMemberListResponse, error) {
	return s.etcd.MemberList(requestOf(ctx).Target.etcd, req)
}

func (s *machineService) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (
	*pb.EtcdStatusResponse, error) {
	return s.etcd.Status(requestOf(ctx).Target.etcd)
}

func (s *machineService) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (
	*pb.EtcdAlarmListResponse, error) {
	return s.etcd.AlarmList(requestOf(ctx).Target.etcd)
}

func (s *machineService) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (
	*pb.EtcdAlarmDisarmResponse, error) {
	return s.etcd.DisarmAlarms(requestOf(ctx).Target.etcd)
}

func (s *machineService) EtcdRemoveMemberByID(ctx context.Context, req *pb.EtcdRemoveMemberByIDRequest) (
	*pb.EtcdRemoveMemberByIDResponse, error) {
	return s.etcd.RemoveMember(requestOf(ctx).Target.etcd, req)
}

func (s *machineService) EtcdLeaveCluster(ctx context.Context, _ *pb.EtcdLeaveClusterRequest) (
	*pb.EtcdLeaveClusterResponse, error) {
	return s.etcd.Leave(requestOf(ctx).Target.etcd)
}

func (s *machineService) EtcdForfeitLeadership(ctx context.Context, _ *pb.EtcdForfeitLeadershipRequest) (
	*pb.EtcdForfeitLeadershipResponse, error) {
	return s.etcd.ForfeitLeadership(requestOf(ctx).Target.etcd)
}

// EtcdDefragment has the machine's own member write its database anew, without what was deleted.
func (s *machineService) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (
	*pb.EtcdDefragmentResponse, error) {
	m := requestOf(ctx).Target
	if err := m.etcd.Local("etcd defragment"); err != nil {
		return nil, err
	}
	callLater(s.world, s.world.config.Hooks.OnDefragment, m.spec.Address)
	return &pb.EtcdDefragmentResponse{Messages: []*pb.EtcdDefragment{{}}}, nil
}

// EtcdSnapshot sends the database of the target's own member, which needs no quorum and may be a learner
// (etcd: newStreamInterceptor in server/etcdserver/api/v3rpc/interceptor.go). Talos hides an error of etcd
// that comes later: the stream ends there (pkg/chunker/stream/stream.go).
func (s *machineService) EtcdSnapshot(req *pb.EtcdSnapshotRequest, out pb.MachineService_EtcdSnapshotServer,
) error {
	unlock := s.world.lock()
	m, snapshot := requestOf(out.Context()).Target, s.world.config.Hooks.Snapshot
	err := m.etcd.Local("etcd snapshot")
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
		return apid.OnlyOnControlPlanes("etcd recover")
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
		m.etcd.Upload(snapshot.Bytes())
	}
	unlock()
	if !same {
		return status.Error(codes.Unavailable, "transport is closing")
	}
	return in.SendAndClose(&pb.EtcdRecoverResponse{Messages: []*pb.EtcdRecover{{}}})
}

// kubernetesCA is the certificate of the Kubernetes CA that the machines of a cluster have.
func (w *world) kubernetesCA(ca string) []byte {
	for _, m := range w.machines {
		if m.controlPlane() && m.installed.CA == ca && m.installed.Provider.Cluster().IssuingCA() != nil {
			return m.installed.Provider.Cluster().IssuingCA().Crt
		}
	}
	return nil
}

package talos

import (
	"context"
	"fmt"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/apid"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/etcd"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/health"
)

// clusterService checks the cluster of a request's target: its machines, which the fleet knows, and its
// Kubernetes.
type clusterService struct {
	clusterapi.UnimplementedClusterServiceServer
	world *world
	etcd  *etcd.Etcd
}

// HealthCheck waits for one condition after the other, and sends each change of what it waits for.
func (s *clusterService) HealthCheck(req *clusterapi.HealthCheckRequest,
	out clusterapi.ClusterService_HealthCheckServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).Target
	c := m.installed
	unlock()
	if c == nil || !c.ControlPlane {
		return apid.OnlyOnControlPlanes("cluster health check")
	}
	ctx, stop := context.WithTimeout(out.Context(), req.GetWaitTimeout().AsDuration())
	defer stop()
	kubeconfig, err := c.AdminKubeconfig()
	if err != nil {
		return err
	}
	return health.Check(ctx, health.Cluster{
		Machines:   func() []health.Machine { return s.machines(m) },
		Members:    func() ([]string, error) { return s.members(m) },
		Kubeconfig: kubeconfig, CNI: c.Provider.Cluster().Network().CNI().Name(),
	}, func(format string, args ...any) error {
		return out.SendMsg(&clusterapi.HealthCheckProgress{Message: fmt.Sprintf(format, args...)})
	})
}

// machines are those of the cluster of one.
func (s *clusterService) machines(of *machine) (all []health.Machine) {
	defer s.world.lock()()
	for _, m := range s.world.machines {
		if m.installed != nil && of.installed != nil && m.installed.CA == of.installed.CA {
			all = append(all, health.Machine{Address: m.spec.Address, ControlPlane: m.controlPlane(),
				Up: m.server != nil, Stage: m.doing, Services: servicesOf(m)})
		}
	}
	return all
}

// members are the addresses of the members of a machine's etcd.
func (s *clusterService) members(of *machine) ([]string, error) {
	defer s.world.lock()()
	return s.etcd.Members(of.etcd)
}

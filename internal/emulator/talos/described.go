package talos

import (
	"fmt"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/resources"
)

// facts are what the described resources of a machine follow from.
type facts struct {
	installed *machineconfig.Config
	ready     bool   // kubelet and static Pods run
	nodeReady bool   // as far as the emulator knows
	member    uint64 // of etcd; 0: none
}

// describe brings the resources up to date that say what a configured machine is, if that has changed.
func (p *power) describe(m *machine) {
	now := facts{installed: m.installed, ready: m.ready, member: m.etcd.MemberID(),
		nodeReady: m.ready && m.installed != nil && p.etcd.Announced(m.installed.CA)}
	if now == m.described || m.installed == nil {
		return
	}
	w := p.world
	if now.installed != m.described.installed {
		w.describeConfigured(m)
	}
	node := k8s.NewNodeStatus(k8s.NamespaceName, m.hostname())
	resources.Set(m.resources, node, func(r *k8s.NodeStatus) {
		spec := m.machineSpec()
		*r.TypedSpec() = k8s.NodeStatusSpec{Nodename: m.hostname(), NodeReady: now.nodeReady,
			Labels: spec.Labels, Annotations: spec.Annotations}
	})
	for _, name := range machineconfig.Components {
		pod := k8s.NewStaticPodStatus(k8s.NamespaceName, "kube-system/"+name+"-"+m.hostname())
		if !now.ready || !m.controlPlane() {
			m.resources.Remove(pod)
			continue
		}
		resources.Set(m.resources, pod, func(r *k8s.StaticPodStatus) {
			r.TypedSpec().PodStatus = map[string]any{"phase": "Running", "conditions": []any{
				map[string]any{"type": "Ready", "status": "True"}}}
		})
	}
	member := etcdres.NewMember(etcdres.NamespaceName, etcdres.LocalMemberID)
	if now.member == 0 {
		m.resources.Remove(member)
	} else {
		resources.Set(m.resources, member, func(r *etcdres.Member) {
			r.TypedSpec().MemberID = fmt.Sprintf("%016x", now.member)
		})
	}
	m.described = now
}

// describeConfigured sets the resources that follow from the configuration alone.
func (w *world) describeConfigured(m *machine) {
	own := netip.MustParseAddr(m.spec.Address) // Boot has validated it
	resources.Set(m.resources, network.NewHostnameStatus(network.NamespaceName, network.HostnameID),
		func(r *network.HostnameStatus) { r.TypedSpec().Hostname = m.hostname() })
	resources.Set(m.resources, network.NewNodeAddress(network.NamespaceName, network.NodeAddressDefaultID),
		func(r *network.NodeAddress) {
			r.TypedSpec().Addresses = []netip.Prefix{netip.PrefixFrom(own, own.BitLen()*3/4)}
		})
	resources.Set(m.resources, timeres.NewStatus(), func(r *timeres.Status) { r.TypedSpec().Synced = true })
	resources.Set(m.resources, config.NewMachineType(), func(r *config.MachineType) {
		r.SetMachineType(m.installed.Provider.Machine().Type())
	})
	resources.Set(m.resources, k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID), func(r *k8s.Nodename) {
		r.TypedSpec().Nodename = m.hostname()
	})
	resources.Set(m.resources, block.NewVolumeStatus(block.NamespaceName, constants.EphemeralPartitionLabel),
		func(r *block.VolumeStatus) {
			disk := m.disks()[0]
			r.TypedSpec().Phase, r.TypedSpec().Type = block.VolumePhaseReady, block.VolumeTypePartition
			r.TypedSpec().Location, r.TypedSpec().ParentLocation = disk.Device+"4", disk.Device
			r.TypedSpec().Filesystem = block.FilesystemTypeXFS
			r.TypedSpec().SetSize(disk.Size - min(disk.Size, systemPartitions))
		})
	security, cluster := m.installed.Provider.Machine().Security(), m.installed.Provider.Cluster()
	resources.Set(m.resources, secrets.NewOSRoot(secrets.OSRootID), func(r *secrets.OSRoot) {
		r.TypedSpec().IssuingCA, r.TypedSpec().AcceptedCAs = security.IssuingCA(), security.AcceptedCAs()
		r.TypedSpec().Token = security.Token()
	})
	if !m.controlPlane() {
		return
	}
	root := secrets.NewKubernetesRoot(secrets.KubernetesRootID)
	resources.Set(m.resources, root, func(r *secrets.KubernetesRoot) {
		*r.TypedSpec() = secrets.KubernetesRootSpec{Name: cluster.Name(), Endpoint: cluster.Endpoint(),
			CertSANs: cluster.CertSANs(), DNSDomain: cluster.Network().DNSDomain(),
			IssuingCA: cluster.IssuingCA(), AcceptedCAs: cluster.AcceptedCAs(),
			ServiceAccount: cluster.ServiceAccount(), AggregatorCA: cluster.AggregatorCA()}
	})
	resources.Set(m.resources, k8s.NewBootstrapManifestsConfig(), func(r *k8s.BootstrapManifestsConfig) {
		*r.TypedSpec() = k8s.BootstrapManifestsConfigSpec{Server: cluster.Endpoint().String(),
			ClusterDomain: cluster.Network().DNSDomain(), PodCIDRs: cluster.Network().PodCIDRs(),
			ProxyEnabled: cluster.Proxy().Enabled(), CoreDNSEnabled: cluster.CoreDNS().Enabled(),
			CNIName: cluster.Network().CNI().Name()}
	})
}

// systemPartitions is what the partitions before EPHEMERAL take of the first disk.
const systemPartitions = 1 << 31

// disks are a machine's disks: one of 32 GiB unless it names others.
func (m *machine) disks() []Disk {
	if len(m.spec.Disks) > 0 {
		return m.spec.Disks
	}
	return []Disk{{Device: "/dev/sda", Model: "QEMU HARDDISK", Size: 32 << 30}}
}

package datacenter

import (
	"slices"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// Two clusters are apart: machines of Hetzner Cloud form one, and all others another.

// kubes are the Kubernetes that there may be.
func (d *Datacenter) kubes() []*kube { return slices.Compact([]*kube{d.kube, d.clouds}) }

// kubeAt is the Kubernetes of the machine at an address.
func (d *Datacenter) kubeAt(address string) *kube {
	if d.cloud == nil {
		return d.kube
	}
	d.cloud.mu.Lock()
	defer d.cloud.mu.Unlock()
	if d.cloud.had[address] {
		return d.clouds
	}
	return d.kube
}

// bootstrapped is a cluster whose machines are configured.
func (d *Datacenter) bootstrapped(spec talos.ClusterSpec) {
	if d.clouds.has(spec.Name) {
		d.clouds.bootstrapped(spec)
		return
	}
	d.kube.bootstrapped(spec)
}

// quorum tells each: it knows its etcd by the authority.
func (d *Datacenter) quorum(ca []byte) {
	for _, k := range d.kubes() {
		k.quorum(ca)
	}
}

func (d *Datacenter) recover(address string, snapshot []byte, skipHashCheck bool) (bool, error) {
	return d.kubeAt(address).recover(address, snapshot, skipHashCheck)
}

// has reports whether a machine of a cluster is on.
func (k *kube) has(cluster string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.machines {
		if m.ClusterName == cluster {
			return true
		}
	}
	return false
}

// name is that of the cluster; empty without one.
func (k *kube) name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cluster == nil {
		return ""
	}
	return k.cluster.spec.Name
}

// end ends the cluster with its data.
func (k *kube) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endCluster()
}

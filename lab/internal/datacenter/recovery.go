package datacenter

import (
	"context"
	"errors"
	"io"

	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// snapshot reads the one real etcd, which stands for the members of all control planes.
func (k *kube) snapshot(ctx context.Context, address string) (io.ReadCloser, error) {
	k.mu.Lock()
	c := k.cluster
	serves := c != nil && c.running()
	k.mu.Unlock()
	if !serves {
		return nil, errors.New("context deadline exceeded") // its process is about to start
	}
	k.log.say("talos %s: etcd sends a snapshot", address)
	return kubernetes.Snapshot(ctx, c.dir)
}

// recover makes etcd's data from a snapshot that a caller has sent to a machine. The cluster that it begins
// is announced later, as a new one is.
func (k *kube) recover(address string, snapshot []byte, skipHashCheck bool) (written bool, err error) {
	k.mu.Lock()
	busy := k.cluster != nil
	k.mu.Unlock()
	if busy {
		err = errors.New("the lab holds one cluster at a time, and a control plane still has the data of " +
			"the former one")
	} else {
		written, err = controlplane.Recover(k.ctx, k.dir(), snapshot, skipHashCheck)
	}
	if err != nil {
		k.log.say("talos %s: etcd is not recovered: %v", address, err)
		return written, err
	}
	k.log.say("talos %s: etcd is recovered from a snapshot of %d bytes", address, len(snapshot))
	return false, nil
}

// quorum is a change of whether the etcd of a cluster has a quorum. The one real etcd always has one.
func (k *kube) quorum(ca []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.cluster
	if c == nil || string(c.spec.CACert) != string(ca) {
		return
	}
	has := k.fleet.HasQuorum(ca)
	if has != c.stalled {
		return
	}
	c.stalled = !has
	if err := kubernetes.SetQuorum(c.dir, has); err != nil {
		k.log.say("kubernetes: %v", err)
	}
	if !has {
		k.log.say("kubernetes: etcd of %s has no quorum", c.spec.Name)
		return
	}
	k.log.say("kubernetes: etcd of %s has a quorum", c.spec.Name)
	if !c.running() {
		k.startCluster()
		return
	}
	for _, m := range k.machines {
		if m.ControlPlane && c.doors[m.Address] == nil {
			k.join(m)
		}
	}
}

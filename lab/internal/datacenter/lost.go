package datacenter

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// firstSnapshot are the faults of the first snapshot of etcd.
type firstSnapshot struct{ cut, lost sync.Once }

// full is the fault etcd-full.
type full struct {
	begins sync.Once
	over   atomic.Bool
}

// databaseSize is that of the one real etcd, with the fault etcd-full.
func (d *Datacenter) databaseSize(address string) int64 {
	if d.config.Faults.EtcdFull && !d.full.over.Load() {
		d.full.begins.Do(func() { d.log.begins("etcd-full") })
		return 3 << 29
	}
	return kubernetes.DatabaseSize(d.kubeAt(address).dir())
}

// defragmented ends the fault etcd-full: one etcd stands for all.
func (d *Datacenter) defragmented(address string) {
	d.log.say("talos %s: etcd defragments its database", address)
	if !d.full.over.Swap(true) && d.config.Faults.EtcdFull {
		d.log.ends("etcd-full")
	}
}

// snapshot reads etcd for a caller, with the faults snapshot-cut and control-planes-lost.
func (d *Datacenter) snapshot(ctx context.Context, address string) (io.ReadCloser, error) {
	database, err := d.kubeAt(address).snapshot(ctx, address)
	if err == nil && d.config.Faults.SnapshotCut {
		d.first.cut.Do(func() { database, err = d.half(database) })
	}
	if err != nil || !d.config.Faults.ControlPlanesLost {
		return database, err
	}
	return &watched{ReadCloser: database, ended: func() {
		// Its reader has the end of the stream before the machine is gone.
		d.first.lost.Do(func() { time.AfterFunc(time.Second, d.loseControlPlanes) })
	}}, nil
}

// half is the first half of a snapshot, of a member that dies meanwhile: Talos does not report it.
func (d *Datacenter) half(database io.ReadCloser) (io.ReadCloser, error) {
	d.log.begins("snapshot-cut")
	defer d.log.ends("snapshot-cut")
	all, err := io.ReadAll(database)
	return io.NopCloser(bytes.NewReader(all[:len(all)/2])), errors.Join(err, database.Close())
}

// watched calls ended when it is closed after it was read to its end.
type watched struct {
	io.ReadCloser
	atEnd bool
	ended func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.atEnd = w.atEnd || errors.Is(err, io.EOF)
	return n, err
}

func (w *watched) Close() error {
	if w.atEnd {
		w.ended()
	}
	return w.ReadCloser.Close()
}

// loseControlPlanes is the fault control-planes-lost: VMs and their disks are gone, as after the failure of
// their hosts. Machines that no hypervisor has get blank disks and wait for a configuration.
func (d *Datacenter) loseControlPlanes() {
	if d.kube.ctx.Err() != nil {
		return
	}
	d.log.begins("control-planes-lost")
	for _, address := range d.kube.controlPlanes() {
		id := d.kube.addresses.owner(address)
		if id != 0 {
			d.log.say("vm %d: lost with its disks", id)
			d.proxmox.RemoveVM(id)
			d.kube.addresses.discard(address, id)
		}
		d.remove(address)
		i := slices.IndexFunc(d.config.Machines, func(m talos.Machine) bool { return m.Address == address })
		if i >= 0 {
			if err := d.place(d.config.Machines[i]); err != nil {
				d.log.say("talos %s: %v", address, err)
			}
		}
	}
	d.log.ends("control-planes-lost")
}

// controlPlanes are the addresses of the control planes that are on, or have data of the cluster.
func (k *kube) controlPlanes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]bool{}
	for address, m := range k.machines {
		if m.ControlPlane {
			all[address] = true
		}
	}
	if k.cluster != nil {
		maps.Copy(all, k.cluster.stored)
	}
	return slices.Sorted(maps.Keys(all))
}

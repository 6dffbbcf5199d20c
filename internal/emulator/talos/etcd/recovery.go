package etcd

import "errors"

// recovery is the start of etcd from the uploaded snapshot, from the bootstrap on.
type recovery struct {
	failed  string // why the service etcd has failed; empty until it has
	written bool   // something is in etcd's data directory, or about to be
}

// spoilt reports whether the disk keeps what a failed recovery has left: nothing but a wipe helps then.
func (r *recovery) spoilt() bool { return r.failed != "" && r.written }

// Recover makes the machine the only member of a new cluster with the content of the snapshot that it was
// sent (internal/app/machined/pkg/system/services/etcd.go, recoverFromSnapshot).
func (d *Etcd) Recover(n *Node, skipHashCheck bool) {
	r := &recovery{written: true}
	n.recovery = r
	n.host.After(d.config.Delays.Start, func() {
		life, snapshot, address := n.host.Life(), n.snapshot, n.host.Address()
		d.config.Later(func() {
			written, err := false, errors.New("error verifying snapshot: stat /var/lib/etcd.snapshot: no "+
				"such file or directory")
			if snapshot != nil {
				written, err = d.config.Recover(address, snapshot, skipHashCheck)
			}
			defer d.config.Lock()()
			switch {
			case n.host.Life() != life || n.recovery != r: // it has restarted
			case err != nil:
				r.failed, r.written = "Failed to run pre stage: "+err.Error(), written
			default:
				n.recovery, n.snapshot = nil, nil
				n.member = (&group{recovered: true}).add(n, false)
				d.startMember(n.member)
			}
		})
	})
}

// Upload keeps a snapshot on the disk, in place of an earlier one.
func (n *Node) Upload(snapshot []byte) { n.snapshot = snapshot }

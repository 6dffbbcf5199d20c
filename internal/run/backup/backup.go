// Package backup takes backups of a cluster's etcd, and reads them. A backup counts once the snapshot was
// verified and all of it is stored.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/etcd"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/survival"
	"github.com/ephemeral-castle/castle/internal/state/backups"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// most is the largest database that castle backs up, in bytes. etcd's own default limit is 2 GiB.
const most = 1 << 30

// Keep is how many backups are kept unless somebody chooses.
const Keep = 20

// Options say when a backup is taken, and how many stay.
type Options struct {
	IfOlderThan time.Duration // take none if the newest is younger; 0: take one
	Keep        int           // how many backups stay; 0: all
}

// Result is what Take has done.
type Result struct {
	Backup  *backups.Backup `json:"backup"`
	Taken   bool            `json:"taken"` // now; else Backup is young enough
	Deleted []string        `json:"deleted"`
	Place   string          `json:"place"`
	// Data are those of survives blocks, which Take leaves to its caller.
	Data []survival.Taken `json:"data"`
}

// Take backs up etcd of the cluster that r has read the outputs of. It asks the control planes in turn, a
// follower first: a snapshot costs the leader more. It needs no lock: backups come and go as a whole.
func Take(ctx context.Context, r *run.Run, o Options) (_ *Result, err error) {
	shelf, err := r.Cluster.Backups(ctx)
	if err != nil {
		return nil, err
	}
	newest, err := shelf.Newest(ctx)
	if err != nil {
		return nil, err
	}
	result := &Result{Backup: newest, Deleted: []string{}, Place: r.Cluster.Place()}
	life := Life(ctx, r)
	if newest != nil && life != "" && newest.Life == life && time.Since(newest.Time) < o.IfOlderThan {
		return result, nil
	}
	file, remove, err := temporary(r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b, err := snapshot(ctx, r, file)
	if err == nil {
		b.Life = life
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	result.Taken = true
	if result.Backup, err = shelf.Save(ctx, *b, file); err != nil || o.Keep == 0 {
		return result, err
	}
	begun, err := r.Cluster.Dir.Restoration().Value()
	if err == nil && begun.Backup == "" { // else it needs its backup until it is completed
		result.Deleted, err = shelf.Prune(ctx, o.Keep)
	}
	return result, err
}

// Life identifies the present life of the cluster: a backup of another one is none of this cluster. It is
// empty if the API does not answer soon.
func Life(ctx context.Context, r *run.Run) string {
	ctx, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	life, _ := kube.Life(ctx, r.Outputs.Target()) //nolint:errcheck // as the comment says
	return life
}

// member is a machine whose member of etcd follows a leader.
type member struct {
	node    *talos.Node
	address string
	is      talos.EtcdMember
}

// members returns the members that have what the quorum has agreed to, followers first.
func members(ctx context.Context, r *run.Run) (all []member, err error) {
	talosconfig := r.Outputs.Target().Talosconfig
	controlPlanes := r.Outputs.ControlPlanes()
	if talosconfig == nil || len(controlPlanes) == 0 {
		return nil, cluster.Usagef("no stage has configured a control plane with Talos, and castle backs " +
			"up etcd through Talos")
	}
	var reasons []string
	for _, one := range controlPlanes {
		address := one.Address
		node, err := talos.OpenNode(talosconfig, address)
		if err != nil {
			return nil, err
		}
		is, err := node.EtcdMember(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			reasons = append(reasons, foreign.OneLine(err.Error()))
		case is.Learner || !is.Leader:
			reasons = append(reasons, "machine "+address+": etcd has no leader there, or it still learns")
		case is.Leads:
			all = append(all, member{node, address, is})
		default:
			all = slices.Insert(all, 0, member{node, address, is})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("etcd cannot be backed up: no control plane has a member with a quorum\n  %s",
			strings.Join(reasons, "\n  "))
	}
	return all, nil
}

// snapshot writes a verified snapshot to a file, and describes it.
func snapshot(ctx context.Context, r *run.Run, file *os.File) (*backups.Backup, error) {
	all, err := members(ctx, r)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, m := range all {
		if m.is.Size > most {
			return nil, fmt.Errorf("etcd has %d MiB, and castle backs up at most %d: remove what fills "+
				"it, such as Events, and defragment it, one control plane after the other: talosctl "+
				"etcd defrag", m.is.Size>>20, most>>20)
		}
		b, err := snapshotOf(ctx, r, m, file)
		if err == nil {
			return b, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		failed = errors.Join(failed, fmt.Errorf("machine %s: %w", m.address, err))
	}
	return nil, fmt.Errorf("etcd cannot be backed up; nothing was stored:\n%w", failed)
}

func snapshotOf(ctx context.Context, r *run.Run, m member, file *os.File) (*backups.Backup, error) {
	b := &backups.Backup{Cluster: r.Cluster.Name(), Time: time.Now().UTC(), By: cluster.Self(),
		Castle: r.Cluster.Options.Version, Member: m.address, Serials: map[string]uint64{},
		Instances: map[string]string{}}
	err := errors.Join(file.Truncate(0), m.node.Snapshot(ctx, io.NewOffsetWriter(file, 0), most))
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	b.Bytes = info.Size()
	if b.Revision, err = etcd.Verify(file.Name()); err != nil {
		return nil, err
	}
	configuration, err := talos.ActiveConfig(ctx, r.Outputs.Target().Talosconfig, m.address)
	if err != nil {
		return nil, err
	}
	if b.Keys, err = talos.KeyFingerprints(configuration); err != nil {
		return nil, err
	}
	is, err := talos.ReadConfigured(configuration)
	if err != nil {
		return nil, err
	}
	b.Kubernetes = is.APIServer
	condition, err := m.node.Condition(ctx)
	b.Talos = condition.Release
	if err != nil {
		return nil, err
	}
	for _, s := range r.Cluster.Config.Stages {
		st, err := r.Cluster.Dir.Stage(s.Name).LastKnown()
		if err != nil || !st.Exists {
			continue
		}
		b.Serials[s.Name] = st.Serial
		maps.Copy(b.Instances, r.Instances(s))
		for _, res := range st.Managed() {
			if name, keyed := terraform.KeyOf(res.Address); keyed && res.Type == review.ApplyType {
				b.Machines = append(b.Machines, name)
			}
		}
	}
	return b, nil
}

// Package restore brings a cluster back that has lost its control planes: its etcd begins with a backup. It
// is refused while any control plane could still serve: two clusters of the same name would fight for the
// same addresses. Once etcd was bootstrapped from the backup, the same command completes what is left. The
// workers that ran before restart then, because what watches Kubernetes misses the changes of a revision that
// came twice (etcd-io/etcd#16028). On a control plane, nothing has run meanwhile.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/drain"
	"github.com/ephemeral-castle/castle/internal/operation/create"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/backup"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/backups"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// How long a restore waits for a machine.
const (
	wipeTime    = 20 * time.Minute
	foundTime   = 20 * time.Minute // until etcd and an API server run with the backup
	restartTime = 20 * time.Minute
)

// Options choose the backup.
type Options struct {
	Backup string // its id, or backup.Newest: that of an interrupted restore, if there is one
	// Confirm gets the plan before any change, and returns an error unless somebody agrees; nil agrees.
	Confirm func(*Plan) error
	// ConfirmLoss is called before a stage replaces or destroys anything else, as in a create.
	ConfirmLoss func(context.Context, review.Loss) (bool, error)
}

// Plan is what a restore does, and what is lost with it.
type Plan struct {
	Backup *backups.Backup
	// Completes reports that an interrupted restore has bootstrapped etcd, or was about to.
	Completes bool
	Wiped     []string // control planes whose etcd is left without a quorum
	Restarts  []string // workers that run
	Changed   []string // stages whose state castle has changed since the backup
}

type restore struct {
	run      *run.Run
	options  Options
	backup   *backups.Backup
	snapshot io.ReadSeeker
	machines []machine
	progress state.Restoration
}

// Run restores etcd from a backup and creates what the cluster lacks.
func Run(ctx context.Context, c *cluster.Cluster, o Options) error {
	ctx, r, err := run.BeginChecked(ctx, c, "restore", applied.CleanUp)
	if err != nil {
		return err
	}
	return r.End((&restore{run: r, options: o}).do(ctx))
}

func (x *restore) do(ctx context.Context) (err error) {
	if _, err := x.run.LastKnownStates(); err != nil {
		return err
	}
	if x.progress, err = x.run.Cluster.Dir.Restoration().Value(); err != nil {
		return err
	}
	if begun := x.progress.Backup; x.options.Backup == backup.Newest && begun != "" {
		x.options.Backup = begun
	} else if begun != "" && begun != x.options.Backup {
		return cluster.Usagef("a restore from backup %s was interrupted; complete it: %s --backup %s", begun,
			x.run.Cluster.Command("restore"), begun)
	}
	use := func(v *backup.Verified, snapshot io.ReadSeeker) error {
		x.backup, x.snapshot = v.Backup, snapshot
		p, err := x.plan(ctx, v)
		if err == nil && x.options.Confirm != nil {
			err = x.options.Confirm(p)
		}
		if err != nil {
			return err
		}
		return x.perform(ctx, p)
	}
	_, err = backup.Verify(ctx, x.run, x.options.Backup, use)
	return err
}

func (x *restore) perform(ctx context.Context, p *Plan) error {
	dir := x.run.Cluster.Dir.Restoration()
	if !p.Completes {
		x.progress.Backup, x.progress.Boots = x.backup.ID, map[string]string{}
		for _, m := range x.machines {
			if slices.Contains(p.Restarts, m.name) {
				x.progress.Boots[m.name] = m.boot
			}
		}
		if err := dir.Write(x.progress); err != nil {
			return err
		}
		alone := slices.DeleteFunc(x.controlPlanes(),
			func(m machine) bool { return !slices.Contains(p.Wiped, m.name) })
		// Together: one that came back blank while others had a quorum would join them.
		wipe := func(m machine) error { return x.wipe(ctx, m) }
		if err := errors.Join(run.Each(alone, wipe)...); err != nil {
			return err
		}
	}
	o := create.Options{Confirm: x.options.ConfirmLoss, Found: x.found}
	if err := create.Stages(ctx, x.run, x.run.Created(), o); err != nil {
		return err
	}
	x.run.Notice("etcd is that of " + x.backup.Time.Local().Format(time.DateTime) + "; what was changed in " +
		"Kubernetes since then is lost, and what was deleted since then is there again")
	x.nameLeases(ctx)
	return dir.Clear()
}

// wipe removes what a control plane has of the etcd that lost its quorum.
func (x *restore) wipe(ctx context.Context, m machine) error {
	x.run.Notice(m.name + " is reset: its etcd has no quorum; its disks for data stay")
	if err := m.node.WipeEtcd(ctx); err != nil {
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	bounded, stop := context.WithTimeout(ctx, wipeTime)
	defer stop()
	return waiting.Until(bounded, x.say(m), func(ctx context.Context) error {
		is, err := m.node.Etcd(ctx)
		if err == nil && is != talos.EtcdBlank {
			err = fmt.Errorf("machine %s: has not been reset yet", m.name)
		}
		return err
	})
}

func (x *restore) say(m machine) func(string) {
	return func(text string) { x.run.Notice(m.name + " " + foreign.OneLine(text)) }
}

// found bootstraps etcd from the backup on the first control plane, as Terraform would do it with an empty
// one, and leaves Kubernetes as if it had never been away.
func (x *restore) found(ctx context.Context) error {
	first := x.controlPlanes()[0]
	if err := x.recover(ctx, first); err != nil {
		return fmt.Errorf("machine %s: %w", first.name, err)
	}
	if err := errors.Join(x.removeNodes(ctx), x.dropReplicas(ctx)); err != nil {
		return err
	}
	for _, m := range x.machines {
		if before := x.progress.Boots[m.name]; before != "" {
			if err := x.restart(ctx, m, before); err != nil {
				return fmt.Errorf("machine %s: %w", m.name, err)
			}
		}
	}
	return nil
}

func (x *restore) recover(ctx context.Context, first machine) error {
	bounded, stop := context.WithTimeout(ctx, foundTime)
	defer stop()
	x.progress.Founding = true
	if err := x.run.Cluster.Dir.Restoration().Write(x.progress); err != nil {
		return err
	}
	err := waiting.Until(bounded, x.say(first), func(ctx context.Context) error {
		is, err := first.node.Etcd(ctx)
		if err != nil || is != talos.EtcdBlank {
			return err
		}
		x.run.Notice(first.name + " gets the backup and bootstraps etcd from it")
		if _, err := x.snapshot.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return first.node.RecoverEtcd(ctx, x.snapshot)
	})
	if err != nil {
		return err
	}
	return waiting.Until(bounded, x.say(first), func(ctx context.Context) error {
		is, err := first.node.Etcd(ctx)
		if err == nil && is != talos.EtcdServes {
			service, unknown := first.node.EtcdService(ctx)
			err = unknown
			if unknown == nil {
				err = fmt.Errorf("etcd does not serve yet: %s", foreign.OneLine(service))
			}
		}
		if err == nil {
			_, err = kube.ServerRelease(ctx, x.run.Outputs.Target(), first.address)
		}
		return err
	})
}

// removeNodes deletes the Nodes of machines that castle has made, and that have left the configuration since
// the backup. What else has no machine there may be a node that somebody else runs: a gate names it.
func (x *restore) removeNodes(ctx context.Context) error {
	target := x.run.Outputs.Target()
	nodes, err := drain.Nodes(ctx, target)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		of, own := strings.CutPrefix(name, x.run.Cluster.Config.Name+"-")
		configured := slices.ContainsFunc(x.machines, func(m machine) bool { return m.name == of })
		if !own || configured || !slices.Contains(x.backup.Machines, of) {
			continue
		}
		x.run.Notice("Node " + name + " is deleted: its machine has left since the backup")
		if err := kube.DeleteNode(ctx, target, name); err != nil {
			return err
		}
	}
	return err
}

// dropReplicas deletes the replicas of Longhorn that the backup has brought back on machines that were made
// anew since: their disks are others. It names the volumes that have no other replica.
func (x *restore) dropReplicas(ctx context.Context) error {
	now := map[string]string{}
	for _, s := range x.run.Cluster.Config.Stages {
		maps.Copy(now, x.run.Instances(s))
	}
	for _, address := range slices.Sorted(maps.Keys(x.backup.Instances)) {
		name, _ := terraform.KeyOf(address)
		if now[address] == "" || now[address] == x.backup.Instances[address] {
			continue
		}
		node := x.run.Cluster.Config.Name + "-" + name
		dropped, lost, err := kube.DropReplicas(ctx, x.run.Outputs.Target(), node)
		if err != nil {
			return err
		}
		if len(dropped) > 0 {
			x.run.Notice(name + " was made anew since the backup; Longhorn's replicas that it had are " +
				"deleted: " + client.Several(dropped))
		}
		if len(lost) > 0 {
			x.run.Notice(name + " was made anew since the backup, and had the only intact replica of: " +
				client.Several(lost) + "; restore these volumes from backups of Longhorn, or delete them")
		}
	}
	return nil
}

// nameLeases names the leases that nobody has renewed since the backup: who held them is gone.
func (x *restore) nameLeases(ctx context.Context) {
	stale, err := kube.StaleLeases(ctx, x.run.Outputs.Target(), x.backup.Time)
	if err != nil {
		x.run.Notice(fmt.Sprintf("which leases nobody renews is not known: %v", err))
	}
	if len(stale) > 0 {
		x.run.Notice("the backup has brought leases back that nobody has renewed: " + client.Several(stale) +
			"; they hold nothing up, and kubectl delete lease removes them")
	}
}

// restart restarts a machine that has run since before the restore, unless it has restarted since.
func (x *restore) restart(ctx context.Context, m machine, before string) error {
	bounded, stop := context.WithTimeout(ctx, restartTime)
	defer stop()
	is, err := m.node.Condition(bounded)
	if err == nil && is.BootID == before {
		x.run.Notice(m.name + " restarts: what runs there has watched the former etcd")
		err = m.node.Reboot(bounded)
	}
	if err == nil {
		_, err = m.node.AwaitRestart(bounded, before, func(text string) { x.say(m)("waits: " + text) })
	}
	if err != nil {
		return err
	}
	delete(x.progress.Boots, m.name)
	return x.run.Cluster.Dir.Restoration().Write(x.progress)
}

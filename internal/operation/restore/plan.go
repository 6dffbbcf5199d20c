package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/backup"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// quorumTime is how long etcd is without a leader before castle believes that it has no quorum.
const quorumTime = 20 * time.Second

// machine is a machine of the configuration.
type machine struct {
	name, address string
	controlPlane  bool
	node          *talos.Node

	boot string // its boot id; empty if it does not answer as a machine of the cluster
	etcd talos.Etcd
	down error // why etcd is unknown
}

// plan looks at all machines. Its error is a *run.RefusedError if a control plane may still serve.
func (x *restore) plan(ctx context.Context, v *backup.Verified) (*Plan, error) {
	if err := x.listMachines(); err != nil {
		return nil, err
	}
	var reasons []string
	refuse := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	switch {
	case !v.Compared:
		refuse("the state has no configuration of a control plane, and its keys decide whether the cluster "+
			"can read the backup; bring the state back first: %s", x.run.Cluster.Command("state restore"))
	case len(v.OtherKeys) > 0:
		refuse("the cluster has other keys than backup %s, and could not read what is in it: %s",
			x.backup.ID, strings.Join(v.OtherKeys, ", "))
	}
	p := &Plan{Backup: x.backup, Completes: x.progress.Founding}
	if p.Completes || len(reasons) > 0 {
		return p, refusal(reasons)
	}
	if err := x.look(ctx); err != nil {
		return nil, err
	}
	found, err := unrecorded.Look(ctx, x.run, x.run.Cluster.Config.Stages)
	if err != nil {
		return nil, err
	}
	isAbsent := func(m machine) bool {
		return slices.ContainsFunc(found.Facts, func(f platform.Fact) bool {
			return f.Key == m.name && f.Status == "absent"
		})
	}
	for _, m := range x.machines {
		switch {
		case m.controlPlane && m.etcd == talos.EtcdServes:
			refuse("etcd has a quorum, which %s follows; a restore would be a second cluster beside it\n"+
				"    a control plane that is lost alone is replaced: %s --replace NAME", m.name,
				x.run.Cluster.Command("rollout"))
		case m.controlPlane && m.etcd == talos.EtcdUnknown && !isAbsent(m):
			refuse("%s may still have etcd's data: %s\n    bring it back, or remove the machine", m.name,
				strings.TrimSuffix(m.down.Error()+"; "+found.NotAsked, "; "))
		case m.controlPlane && m.etcd == talos.EtcdAlone:
			p.Wiped = append(p.Wiped, m.name)
		case !m.controlPlane && m.boot != "":
			p.Restarts = append(p.Restarts, m.name)
		}
	}
	p.Changed = x.changed()
	return p, refusal(reasons)
}

func refusal(reasons []string) error {
	if len(reasons) == 0 {
		return nil
	}
	return &run.RefusedError{Refused: "the restore was not begun; nothing was changed", Reasons: reasons}
}

func (x *restore) listMachines() error {
	talosconfig := x.run.Outputs.Target().Talosconfig
	if talosconfig == nil || len(x.run.Outputs.ControlPlanes()) == 0 {
		return cluster.Usagef("no stage has configured a control plane with Talos, and castle restores "+
			"etcd through Talos\n  if its state is lost, bring it back first: %s",
			x.run.Cluster.Command("state restore"))
	}
	for _, one := range x.run.Outputs.Machines() {
		node, err := talos.OpenNode(talosconfig, one.Address)
		if err != nil {
			return err
		}
		x.machines = append(x.machines, machine{name: one.Name, address: one.Address,
			controlPlane: one.ControlPlane, node: node})
	}
	return nil
}

func (x *restore) controlPlanes() []machine {
	return xslices.Filter(x.machines, func(m machine) bool { return m.controlPlane })
}

// look asks each machine for its boot and its etcd. What has no leader now may have one in a moment.
func (x *restore) look(ctx context.Context) error {
	once := func(context.Context) error {
		x.machines = run.Each(x.machines, func(m machine) machine {
			condition, err := m.node.Condition(ctx)
			if m.boot = ""; err == nil {
				m.boot = condition.BootID
			}
			if m.controlPlane {
				m.etcd, m.down = m.node.Etcd(ctx)
			}
			return m
		})
		has := func(is talos.Etcd) bool {
			return slices.ContainsFunc(x.machines, func(m machine) bool { return m.etcd == is })
		}
		if has(talos.EtcdAlone) && !has(talos.EtcdServes) {
			return errors.New("etcd has no leader; castle waits for an election")
		}
		return nil
	}
	bounded, stop := context.WithTimeout(ctx, quorumTime)
	defer stop()
	_ = waiting.Until(bounded, x.run.Notice, once) //nolint:errcheck // then it has no leader
	return context.Cause(ctx)
}

// changed are the stages whose state is another one than at the time of the backup.
func (x *restore) changed() (stages []string) {
	for _, s := range x.run.Cluster.Config.Stages {
		st, err := x.run.Cluster.Dir.Stage(s.Name).LastKnown()
		if err == nil && st.Exists && st.Serial != x.backup.Serials[s.Name] {
			stages = append(stages, s.Name)
		}
	}
	return stages
}

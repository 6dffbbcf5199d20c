package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/operation/create"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// join makes a machine and configures it, and waits until its API answers. A control plane becomes a voter.
func (x *rollout) join(ctx context.Context, s *Step) error {
	m := s.machine
	replaced := create.Machine{}
	if s.Action == Replace {
		replaced = create.Machine{Leaves: true, Replace: m.origins()}
	}
	for _, configures := range []bool{false, true} {
		if err := x.apply(ctx, s, configures, replaced); err != nil {
			return err
		}
	}
	node, err := x.open(m)
	if err != nil {
		return err
	}
	bounded, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	if err := node.AwaitReady(bounded, x.say(s)); err != nil {
		return err
	}
	m.joined, m.left, m.down, m.is.ControlPlane = true, false, nil, m.controlPlane
	return x.record(m.name, func(p *progress) { *p = progress{Remade: s.Action == Replace} })
}

// origins are the resources that a machine is made anew by: the machine itself, or the configuration of one
// that stays, which is reset then.
func (m *machine) origins() (addresses []string) {
	var configurations []string
	for _, all := range m.resources {
		for _, address := range all {
			typ, _, _ := strings.Cut(address, ".")
			switch {
			case isConfiguration(address):
				configurations = append(configurations, address)
			case cluster.Platforms().IsMachine(typ):
				addresses = append(addresses, address)
			}
		}
	}
	if len(addresses) == 0 {
		return configurations
	}
	return addresses
}

// leave takes a machine out of the cluster, in the order in which nothing is lost: its data moves, its Pods
// move, etcd goes on without it, and then its Node ends. One that is down has nothing to move any more.
func (x *rollout) leave(ctx context.Context, s *Step) error {
	m := s.machine
	if m.serves() {
		// The cordon comes first: it tells the next rollout what an interrupted one has begun.
		for _, do := range []func(context.Context, *Step) error{x.cordon, x.moveReplicas, x.empty} {
			if err := do(ctx, s); err != nil {
				return err
			}
		}
	}
	if err := x.record(m.name, func(p *progress) { p.Leaves = true }); err != nil {
		return err
	}
	if m.joined && m.is.ControlPlane {
		if err := x.leaveEtcd(ctx, s); err != nil {
			return err
		}
	}
	m.joined = false
	return kube.DeleteNode(ctx, x.target(), s.Node)
}

func (x *rollout) remove(ctx context.Context, s *Step) error {
	if err := x.leave(ctx, s); err != nil {
		return err
	}
	for _, configures := range []bool{true, false} {
		if err := x.apply(ctx, s, configures, create.Machine{Leaves: true}); err != nil {
			return err
		}
	}
	if err := x.record(s.Machine, func(p *progress) { *p = progress{} }); err != nil {
		return err
	}
	// A targeted apply has left outputs such as the number of workers as they were, and gates read them.
	for _, stage := range machineStages(x.run.Cluster) {
		x.run.Outputs.Evaluate(stage)
	}
	return kube.DeleteNode(ctx, x.target(), s.Node) // its kubelet may have registered it once more
}

// moveReplicas waits until Longhorn has moved all replicas to other machines. Where it cannot, a machine that
// is made anew gets them again.
func (x *rollout) moveReplicas(ctx context.Context, s *Step) error {
	if replicas, err := kube.ReplicasOn(ctx, x.target(), s.Node); err != nil || len(replicas) == 0 {
		return err
	}
	if err := kube.EvictReplicas(ctx, x.target(), s.Node); err != nil {
		return err
	}
	bounded, stop := context.WithTimeout(ctx, moveTime)
	defer stop()
	return waiting.Until(bounded, x.say(s), func(ctx context.Context) error {
		stuck, err := kube.StuckVolumes(ctx, x.target(), s.Node)
		if err != nil {
			return err
		}
		if kept := s.keeps(stuck); len(kept) > 0 {
			return errors.New(kept[0])
		}
		replicas, err := kube.ReplicasOn(ctx, x.target(), s.Node)
		replicas = slices.DeleteFunc(replicas, func(name string) bool {
			return slices.ContainsFunc(stuck, func(v kube.Stuck) bool { return v.Volume == name })
		})
		if err == nil && len(replicas) > 0 {
			err = fmt.Errorf("the replicas of %s move to other nodes", client.Several(replicas))
		}
		return err
	})
}

// keeps explains which of the volumes that cannot leave keep the step's machine.
func (s *Step) keeps(stuck []kube.Stuck) (texts []string) {
	for _, v := range stuck {
		if s.Action != Replace || !v.Spared {
			texts = append(texts, v.Text)
		}
	}
	return texts
}

// leaveEtcd takes the machine's member out of etcd, and proves it with the lists of the others.
func (x *rollout) leaveEtcd(ctx context.Context, s *Step) error {
	m, config := s.machine, x.target().Talosconfig
	others := x.controlPlanes(append(x.down(), m)...)
	members, err := talos.Members(ctx, config, others)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(members, m.isMember); at >= 0 {
		x.say(s)("leaves etcd")
		node, err := x.open(m)
		switch {
		case m.down != nil:
			err = talos.RemoveMember(ctx, config, others[0], members[at].ID)
		case err == nil:
			err = node.LeaveEtcd(ctx)
		}
		if err != nil {
			return err
		}
	}
	bounded, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	return waiting.Until(bounded, x.say(s), func(ctx context.Context) error {
		members, err := talos.Members(ctx, config, others)
		if err == nil && slices.ContainsFunc(members, m.isMember) {
			err = fmt.Errorf("etcd's other members still list %s", s.Node)
		}
		return err
	})
}

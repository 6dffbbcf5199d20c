package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/kube/drain"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// progress is what a rollout has done to a machine and nobody can see. It is kept until the rollout ends, for
// the next run of the same command.
type progress struct {
	// Image was installed by the system with this BootID, and not booted yet.
	Image  string `json:"image,omitempty"`
	BootID string `json:"boot_id,omitempty"`
	// Leaves: the machine has begun to leave the cluster, and may have left etcd or lost its Node.
	Leaves bool `json:"leaves,omitempty"`
	// Remade: the machine was made anew.
	Remade bool `json:"remade,omitempty"`
}

func (x *rollout) document() state.Document[map[string]progress] {
	stages := machineStages(x.run.Cluster)
	dir := x.run.Cluster.Dir.Stage(stages[len(stages)-1].Name)
	return state.StageDocument[map[string]progress](dir, "rollout")
}

// record changes the record of a machine.
func (x *rollout) record(machine string, change func(*progress)) error {
	all, err := x.document().Value()
	if err != nil {
		return err
	}
	if all == nil {
		all = map[string]progress{}
	}
	one := all[machine]
	change(&one)
	all[machine] = one
	return x.document().Write(all)
}

// recall adds to the machines what an interrupted rollout has recorded. nodes are the registered ones.
func (x *rollout) recall(ctx context.Context, nodes map[string]drain.By) error {
	all, err := x.document().Value()
	if err != nil {
		return err
	}
	for _, m := range x.sorted() {
		m.remade = all[m.name].Remade
		if !all[m.name].Leaves {
			continue
		}
		if !m.joined {
			// Nobody knows whether it was made anew. The kubelet of the former one never registers again.
			m.joined = m.wanted && m.is != talos.Configured{}
			m.left = m.joined
			continue
		}
		_, registered := nodes[m.node]
		m.left = m.down != nil || !registered
		if m.left || !m.is.ControlPlane {
			continue
		}
		others := x.controlPlanes(append(x.down(), m)...)
		members, err := talos.Members(ctx, x.target().Talosconfig, others)
		if err != nil {
			return fmt.Errorf("whether %s has left etcd: %w", m.name, err)
		}
		m.left = !slices.ContainsFunc(members, m.isMember)
	}
	return nil
}

func (m *machine) isMember(member talos.Member) bool { return member.Address == m.address }

// serves reports whether the machine is a part of the cluster that works.
func (m *machine) serves() bool { return m.joined && m.down == nil && !m.left }

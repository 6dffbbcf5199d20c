package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/drain"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// settle waits until the machines are as they have to be between two steps: etcd has all its voters, and all
// nodes are ready. Those that are down are brought back or taken away by the first steps.
func (x *rollout) settle(ctx context.Context, s *Step) error {
	bounded, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	return waiting.Until(bounded, x.say(s), func(ctx context.Context) error {
		if err := x.checkEtcd(ctx); err != nil {
			return err
		}
		return x.checkNodes(ctx, s)
	})
}

// settleServices waits until what runs on the machines is as it has to be: the gates of all other stages are
// open, and Longhorn's volumes have their replicas. On a cordoned node Longhorn starts nothing.
func (x *rollout) settleServices(ctx context.Context, s *Step) error {
	bounded, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	if err := waiting.Until(bounded, x.say(s), x.checkGates); err != nil {
		return err
	}
	rebuilding, stop := context.WithTimeout(ctx, rebuildTime)
	defer stop()
	return waiting.Until(rebuilding, x.say(s), func(ctx context.Context) error {
		unhealthy, err := kube.UnhealthyVolumes(ctx, x.target())
		if err == nil && len(unhealthy) > 0 {
			err = errors.New(client.Several(unhealthy))
		}
		return err
	})
}

// checkEtcd checks that etcd could lose any member. A member whose machine is down must leave a quorum.
func (x *rollout) checkEtcd(ctx context.Context) error {
	config, voters := x.target().Talosconfig, x.controlPlanes(x.down()...)
	if len(voters) == len(x.controlPlanes()) {
		return talos.EtcdHealthy(ctx, config, voters, len(voters))
	}
	members, err := talos.Members(ctx, config, voters)
	if err == nil && 2*len(voters) <= len(members) {
		err = fmt.Errorf("etcd has %d members, and only %d of them are up", len(members), len(voters))
	}
	return err
}

// checkNodes checks that the nodes of all machines are ready, and that a machine which got its configuration
// runs the kubelet that this names.
func (x *rollout) checkNodes(ctx context.Context, s *Step) error {
	kubelets := map[string]string{}
	for _, m := range x.machines {
		if m.serves() {
			kubelets[m.node] = ""
		}
	}
	if s.done && s.configures {
		kubelets[s.Node] = s.machine.will.Kubelet
	}
	return kube.NodesReady(ctx, x.target(), kubelets)
}

// checkGates checks the gates of the stages that neither make nor configure machines. One that waits for a
// newer release waits for the rollout.
func (x *rollout) checkGates(ctx context.Context) error {
	machines := machineStages(x.run.Cluster)
	for _, s := range x.run.Cluster.Config.Stages {
		st, err := x.run.Cluster.Dir.Stage(s.Name).State()
		if err != nil {
			return err
		}
		if slices.Contains(machines, s) || !st.Exists {
			continue
		}
		closed := waiting.FirstClosedGate(ctx, x.run, s, s.Gates)
		if closed != nil && gate.KindOf(closed) != gate.UpgradeNeeded {
			return fmt.Errorf("stage %s: gate %s: %w", s.Name, closed.Gate, closed)
		}
	}
	return nil
}

// obstacles lists what castle knows now that would stop the steps, or must not happen.
func (x *rollout) obstacles(ctx context.Context, steps []*Step) (all []string) {
	add := func(m *machine, text string) { all = append(all, m.name+": "+text) }
	if s := takesLast(steps, len(x.controlPlanes())); s != nil {
		add(s.machine, "it is the only control plane, and etcd's data ends with it; castle recreate makes "+
			"the cluster anew")
	}
	for _, m := range x.sorted() {
		if m.joined && m.wanted && m.down != nil && !m.stopped && !x.isReplaced(m) {
			add(m, fmt.Sprintf("%v\n    bring it back, replace it (--replace %s), or take it out of the "+
				"configuration", m.down, m.name))
		}
		if m.keeps { // Longhorn starts nothing on a cordoned node, and each step would wait for its gates
			if err := x.checkGates(ctx); err != nil {
				add(m, fmt.Sprintf("somebody else has cordoned node %s, and a gate is closed: %v\n    "+
					"uncordon the node before: castle cordons it itself", m.node, err))
			}
		}
		for _, e := range m.effects() {
			switch {
			case e.Kind == effect.Impossible && !x.isReplaced(m):
				add(m, strings.TrimSuffix(e.Text+"; "+e.Remedy, "; "))
			case e.Kind == effect.LosesData && !x.isReplaced(m):
				add(m, fmt.Sprintf("it %s: %s; with --replace %s castle moves its data to other machines "+
					"first", e.Kind.Fate(), e.Text, m.name))
			}
		}
	}
	grows := slices.ContainsFunc(steps, func(s *Step) bool { return s.Action == Add })
	for _, s := range steps {
		takes := s.Action == Remove || s.Action == Replace
		if s.installs != "" {
			_, release := talos.Installs(s.installs)
			err := talos.UpgradePath(s.machine.condition.Release, release, s.machine.is.Kubelet)
			if err != nil {
				add(s.machine, err.Error())
			}
		}
		if takes && s.machine.down != nil && len(s.Volumes) > 0 {
			add(s.machine, "it does not answer, and Longhorn's volumes that only it has would be lost: "+
				client.Several(s.Volumes)+"\n    bring it back, or delete the volumes before")
		}
		if takes && s.machine.joined && !s.machine.left && !grows {
			stuck, err := kube.StuckVolumes(ctx, x.target(), s.Node)
			if err != nil {
				add(s.machine, err.Error())
			}
			for _, text := range s.keeps(stuck) {
				add(s.machine, text)
			}
		}
		if s.hardware && s.machine.datacenter == nil {
			add(s.machine, "its platform cannot stop and start it")
		}
		if s.Drains {
			found, err := drain.Obstacles(ctx, x.target(), s.Node, x.options.Force, takes)
			if err != nil {
				found = []string{err.Error()}
			}
			for _, text := range found {
				add(s.machine, text)
			}
		}
		if s.Action == Replace && !s.machine.serves() &&
			slices.ContainsFunc(x.sorted(), (*machine).upgradesKubernetes) {
			add(s.machine, "it is down or has left, and would come back with a kubelet that is newer than "+
				"the API servers: replace it first, with the former kubernetes_version")
		}
	}
	return append(all, x.deprecated(ctx)...)
}

// takesLast returns the step, if any, that takes the last machine that is a control plane then.
func takesLast(steps []*Step, control int) *Step {
	for _, s := range steps {
		takes := s.Action == Remove || s.Action == Replace
		if takes && s.machine.joined && s.machine.is.ControlPlane {
			if control == 1 {
				return s
			}
			control--
		}
		if s.ControlPlane && (s.Action == Add || s.Action == Replace) {
			control++
		}
	}
	return nil
}

// deprecated lists what clients still ask for and the next release of Kubernetes lacks.
func (x *rollout) deprecated(ctx context.Context) []string {
	for _, m := range x.sorted() {
		if !m.upgradesKubernetes() || m.will.APIServer == "" {
			continue
		}
		asking, stop := context.WithTimeout(ctx, answerTime)
		defer stop()
		found, err := kube.DeprecatedRequests(asking, x.target(), x.controlPlanes(x.down()...),
			m.will.APIServer)
		if err != nil {
			return []string{fmt.Sprintf("the API servers do not tell which APIs clients use: %v", err)}
		}
		return xslices.Map(found, func(text string) string {
			return fmt.Sprintf("Kubernetes %s lacks what clients have asked for: %s", m.will.APIServer, text)
		})
	}
	return nil
}

// usual returns how many seconds steps of each action took in earlier rollouts.
func (x *rollout) usual() map[Action]float64 {
	took := map[Action][]float64{}
	for _, t := range history.Earlier(x.run.Cluster.Dir, x.run.ID, mostRuns, "rollout") {
		for _, m := range t.Machines {
			if !m.Failed {
				took[Action(m.Action)] = append(took[Action(m.Action)], m.Seconds)
			}
		}
	}
	usual := map[Action]float64{}
	for action, all := range took {
		slices.Sort(all)
		usual[action] = all[len(all)/2]
	}
	return usual
}

// mostRuns is how many earlier rollouts tell how long a step takes.
const mostRuns = 10

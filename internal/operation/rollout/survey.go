package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/drain"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// machine is a machine that the cluster has, or is to have.
type machine struct {
	name, node, address string
	controlPlane        bool
	joined, wanted      bool
	left                bool // by an interrupted rollout: the machine is there, and no part of the cluster
	remade              bool // by an interrupted rollout

	resources map[*config.Stage][]string // its addresses, also those that a plan adds
	// What plans do to it: through the platform, and through Talos.
	hardware, configuration []effect.Effect
	replaces                bool
	disks                   []string

	is, will  talos.Configured
	condition talos.Condition
	down      error // why it does not answer

	datacenter platform.Datacenter // nil: nobody can stop and start it
	object     platform.Object
	id         int      // that a plan gives to a machine which joins; 0: unknown
	pending    []string // hardware that waits for a restart
	stopped    bool
	cordoned   bool // by castle
	keeps      bool // a cordon of somebody else
}

func (m *machine) effects() []effect.Effect { return slices.Concat(m.hardware, m.configuration) }

// isRelease reports whether an effect is that of another release of Kubernetes: a kubelet and static Pods
// restart, and no other Pod.
func (m *machine) isRelease(e effect.Effect) bool { return strings.HasPrefix(e.Text, "Kubernetes ") }

// machineStages are the stages that make or configure machines, in their order.
func machineStages(c *cluster.Cluster) []*config.Stage {
	makes := func(s *config.Stage) bool { _, has := s.Outputs[cluster.MachinesOutput]; return has }
	machines := cluster.PlatformLayer + "." + cluster.MachinesOutput
	return slices.DeleteFunc(slices.Clone(c.Config.Stages), func(s *config.Stage) bool {
		reads := func(e config.Edge) bool { return slices.Contains(e.Values, machines) }
		return s.Layer != cluster.PlatformLayer || !makes(s) && !slices.ContainsFunc(s.Edges(), reads)
	})
}

// answerTime bounds each look at a machine.
const answerTime = 15 * time.Second

// survey plans the stages of the machines and asks each machine how it is.
func (x *rollout) survey(ctx context.Context) error {
	x.run.Outputs.Compute(x.run.Cluster.Config.Stages)
	for _, s := range x.run.Cluster.Config.Stages {
		if _, err := x.run.ReadRecorded(s); err != nil {
			return err
		}
	}
	x.configured()
	for _, m := range x.sorted() {
		if m.address == "" {
			return cluster.Usagef("machine %s has no address before it exists, so a rollout cannot plan its "+
				"configuration; make it first: %s", m.name, x.run.Cluster.Command("create"))
		}
	}
	for _, s := range machineStages(x.run.Cluster) {
		if err := x.plan(ctx, s); err != nil {
			return x.run.Failed(ctx, s.Layer, s.Name, err)
		}
	}
	return x.ask(ctx)
}

// configured begins with the machines of the configuration.
func (x *rollout) configured() {
	x.machines = map[string]*machine{}
	for _, one := range x.run.Outputs.Machines() {
		m := x.machine(one.Name)
		m.wanted, m.address, m.controlPlane = true, one.Address, one.ControlPlane
	}
}

// ask asks the cluster for its nodes, and each machine how it is.
func (x *rollout) ask(ctx context.Context) error {
	if len(x.controlPlanes()) == 0 || x.target().Kubeconfig == nil {
		return cluster.Usagef("no stage has configured a control plane with Talos, and a rollout "+
			"changes clusters of such machines\n  %s configures one, or says why it does not\n  machines of "+
			"another kind are changed by hand: castle terraform", x.run.Cluster.Command("create"))
	}
	nodes, err := drain.Nodes(ctx, x.target())
	if err != nil {
		return fmt.Errorf("the cluster's nodes: %w\n  if etcd lost its quorum for good: %s --backup newest",
			err, x.run.Cluster.Command("restore"))
	}
	look := func(m *machine) error {
		m.cordoned, m.keeps = nodes[m.node] == drain.Castle, nodes[m.node] == drain.Others
		if err := x.look(ctx, m); err != nil || !x.waits || !m.returns() || x.isReplaced(m) {
			return err
		}
		x.run.Notice(m.name + " does not answer; an interrupted rollout has cordoned it, and castle waits " +
			"for it")
		bounded, stop := context.WithTimeout(ctx, settleTime)
		defer stop()
		returned := func(ctx context.Context) error { return cmp.Or(x.look(ctx, m), m.down) }
		if waiting.Until(bounded, func(string) {}, returned) != nil {
			return context.Cause(ctx) // without an interrupt it is an obstacle
		}
		return nil
	}
	if err := errors.Join(run.Each(slices.Collect(maps.Values(x.machines)), look)...); err != nil {
		return err
	}
	return x.recall(ctx, nodes)
}

func (x *rollout) machine(name string) *machine {
	if x.machines[name] == nil {
		x.machines[name] = &machine{name: name, node: x.run.Cluster.Config.Name + "-" + name,
			resources: map[*config.Stage][]string{}}
	}
	return x.machines[name]
}

// plan plans a whole stage, and notes what that would do to each machine.
func (x *rollout) plan(ctx context.Context, s *config.Stage) (err error) {
	dir := x.run.Cluster.Dir.Stage(s.Name)
	st, err := x.run.ReadState(dir)
	if err != nil {
		return err
	}
	if !st.Exists {
		return cluster.Usagef("it does not exist; create the cluster first: %s",
			x.run.Cluster.Command("create"))
	}
	inputs, err := x.run.Inputs(s)
	if err != nil {
		return err
	}
	outdated, err := applied.Outdated(x.run, s, st)
	if err != nil {
		return err
	}
	work, err := x.run.OpenWorkspace(s.Name, s.Layer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := work.Prepare(ctx, s, inputs); err != nil {
		return err
	}
	plan, err := work.Root.Plan(ctx, terraform.PlanOptions{Replace: outdated})
	if err != nil {
		return run.During("plan", err)
	}
	defer func() { err = errors.Join(err, plan.Discard()) }()
	return x.read(ctx, s, st, plan, outdated)
}

// read notes what the plan of a whole stage would do to each machine.
func (x *rollout) read(ctx context.Context, s *config.Stage, st *state.State, plan *terraform.Plan,
	outdated []string) error {
	intent, err := x.run.Cluster.Dir.Stage(s.Name).Intent().Read()
	if err != nil {
		return err
	}
	effects, err := review.Effects(ctx, x.run, st, intent, plan, outdated)
	if err != nil {
		return err
	}
	for _, one := range effects {
		x.affect(one)
	}
	var differing map[string]planned.Attributes
	if len(plan.Changes) > 0 {
		differing, _, err = plan.Differences(ctx)
	}
	if err == nil {
		err = x.inspect(ctx, s, st)
	}
	if err != nil {
		return err
	}
	if err := x.noteIDs(ctx, plan); err != nil {
		return err
	}
	instances := x.run.Instances(s)
	for _, res := range st.Managed() {
		name, keyed := terraform.KeyOf(res.Address)
		if keyed && (cluster.Platforms().IsMachine(res.Type) || res.Type == review.ApplyType) {
			x.machine(name) // the keys of other resources need not be machines
		}
	}
	for _, c := range plan.Changes {
		if name, _ := terraform.KeyOf(c.Address); x.machines[name] != nil && c.Action != "read" {
			x.note(s, name, c.Address)
		}
	}
	gone := func(address string) bool { // a plan creates what the refresh has not found
		makes := func(c terraform.Change) bool {
			return c.Address == address && (c.Action == "create" || c.Reason == "tainted")
		}
		// A machine with an instance of this run is only planned: the former one is there.
		return slices.Contains(outdated, address) && instances[address] != x.run.ID ||
			slices.ContainsFunc(plan.Changes, makes)
	}
	for _, res := range st.Managed() {
		name, _ := terraform.KeyOf(res.Address)
		if x.machines[name] == nil {
			continue
		}
		m := x.note(s, name, res.Address)
		if err := m.record(res, gone(res.Address)); err != nil {
			return err
		}
		for _, d := range differing[res.Address].Differences {
			if text, known := d.Is.(string); known && d.Path == "machine_configuration_input" {
				if m.will, err = talos.ReadConfigured([]byte(text)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// noteIDs notes the ids of the machines that a plan makes.
func (x *rollout) noteIDs(ctx context.Context, plan *terraform.Plan) error {
	makes := func(c terraform.Change) bool {
		return c.Action == "create" && cluster.Platforms().IsMachine(c.Type)
	}
	if !slices.ContainsFunc(plan.Changes, makes) {
		return nil
	}
	objects, err := plan.Objects(ctx)
	for _, o := range objects {
		name, keyed := terraform.KeyOf(o.Address)
		_, id, _ := strings.Cut(o.ID, "/")
		if n, bad := strconv.Atoi(id); bad == nil && keyed && cluster.Platforms().IsMachine(o.Type) {
			x.machine(name).id = n
		}
	}
	return err
}

// note notes a resource of a machine, and returns the machine.
func (x *rollout) note(s *config.Stage, name, address string) *machine {
	m := x.machine(name)
	if !slices.Contains(m.resources[s], address) {
		m.resources[s] = append(m.resources[s], address)
	}
	return m
}

func (x *rollout) affect(one review.Affected) {
	m := x.machine(one.Name)
	if isConfiguration(one.Address) {
		m.configuration = one.Effects
	} else {
		m.hardware = one.Effects
	}
	m.replaces = m.replaces || effect.Worst(one.Effects) == effect.Replaces
}

// record notes what the state tells about a machine's resource.
func (m *machine) record(res state.Resource, gone bool) (err error) {
	switch of := cluster.Platforms().OfResource(res.Type); {
	case res.Type == review.ApplyType:
		m.joined = m.joined || !gone && !res.Tainted
		if !m.wanted {
			m.address, _ = res.Attributes["node"].(string)
		}
		text, _ := res.Attributes["machine_configuration_input"].(string)
		if m.will, err = talos.ReadConfigured([]byte(text)); err != nil {
			return err
		}
		m.is = m.will
		if !m.wanted {
			m.controlPlane = m.is.ControlPlane
		}
	case of != nil:
		_, m.disks = of.Describe(res.Attributes)
	}
	return nil
}

// inspect asks the datacenter of a stage how its machines are.
func (x *rollout) inspect(ctx context.Context, s *config.Stage, st *state.State) error {
	datacenter, err := recovery.Datacenter(x.run, s)
	if errors.Is(err, recovery.ErrNoLookup) {
		return nil
	}
	if err != nil {
		return err
	}
	ids, err := cluster.MachineIDs(x.run.Cluster.Dir.Stage(s.Name)).Value()
	if err != nil {
		return err
	}
	known := cluster.Known(st, ids...)
	facts, err := datacenter.Facts(ctx, known)
	if err != nil {
		return err
	}
	for _, f := range facts {
		m := x.machine(f.Key)
		m.datacenter, m.pending, m.stopped = datacenter, f.Pending, f.Status == "stopped"
	}
	for _, k := range known {
		name, keyed := terraform.KeyOf(k.Address)
		for _, o := range cluster.Platforms().ObjectsOf([]gate.Known{k}) {
			if keyed && o.Kind == platform.Machine {
				x.machine(name).object = o
			}
		}
	}
	return nil
}

// Survey lists the steps of a rollout with the plans that a run makes anyway. It changes nothing.
type Survey struct {
	x      *rollout
	mu     sync.Mutex      // stages are planned in parallel
	stages []*config.Stage // that make or configure machines, and have not been read
	failed error
}

// NewSurvey begins with the machines of the configuration, whose outputs the run has computed.
func NewSurvey(r *run.Run) *Survey {
	s := &Survey{x: &rollout{run: r}, stages: machineStages(r.Cluster)}
	s.x.configured()
	return s
}

// Read notes what a stage's plan would do to machines, if it makes or configures any, and an error for List.
func (s *Survey) Read(ctx context.Context, stage *config.Stage, st *state.State, plan *terraform.Plan,
	outdated []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.stages, stage); at >= 0 {
		s.stages = slices.Delete(s.stages, at, at+1)
		s.failed = errors.Join(s.failed, s.x.read(ctx, stage, st, plan, outdated))
	}
}

// List lists the steps; nil: no machine that runs changes, and a create makes those that are new.
func (s *Survey) List(ctx context.Context) (all *List, err error) {
	x := s.x
	if len(x.controlPlanes()) == 0 || x.target().Kubeconfig == nil {
		return nil, nil // no cluster of such machines runs
	}
	if err = s.failed; len(s.stages) > 0 {
		err = fmt.Errorf("stage %s is not planned", s.stages[0].Name)
	}
	if err == nil {
		asking, stop := context.WithTimeout(ctx, answerTime)
		defer stop()
		err = kube.Reachable(x.target().Kubeconfig).Check(asking)
	}
	if err == nil {
		err = x.ask(ctx)
	}
	if err == nil {
		all, err = x.list(ctx)
	}
	stays := func(s *Step) bool { return s.Action != Add }
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && slices.ContainsFunc(x.sorted(), (*machine).differs):
		all = x.newList()
		all.Unknown = err.Error()
	case err != nil || !slices.ContainsFunc(all.Steps, stays):
		return nil, nil
	}
	return all, nil
}

// differs reports whether its plans change a machine that runs.
func (m *machine) differs() bool {
	return m.joined && (!m.wanted || m.replaces || m.will != m.is || effect.Worst(m.effects()) > effect.None)
}

// returns reports whether a machine that does not answer may be on its way back: an interrupted rollout has
// cordoned it, and restarts it.
func (m *machine) returns() bool {
	return m.cordoned && m.wanted && m.joined && m.down != nil && !m.stopped
}

// look asks a machine how it is.
func (x *rollout) look(ctx context.Context, m *machine) error {
	if !m.joined {
		return nil
	}
	asking, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	node, err := talos.OpenNode(x.target().Talosconfig, m.address)
	if err != nil {
		return err
	}
	if m.condition, m.down = node.Condition(asking); m.down == nil {
		var active []byte
		active, m.down = talos.ActiveConfig(asking, x.target().Talosconfig, m.address)
		if m.down == nil {
			m.is, err = talos.ReadConfigured(active)
		}
	}
	return err
}

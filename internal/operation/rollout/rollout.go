// Package rollout brings a cluster that runs to its configuration, one machine after the other. It plans the
// stages of the machines as a whole, asks each machine how it is, and lists the steps: one for each machine,
// or a few. Before each step the cluster is checked, and the step is planned anew for that machine alone. A
// step ends when the machine proves what it runs, and the cluster is as before. What is true decides, with a
// small record of what nobody can see: the same command completes a rollout that was killed at any moment.
package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/operation/create"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/backup"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// Options narrow and permit a rollout.
type Options struct {
	Replace []string // the machines to make anew
	Force   bool     // delete Pods that no controller starts again
	// WithoutBackup goes on without a backup of etcd.
	WithoutBackup bool
	// Confirm gets the steps before the first one, and returns an error unless somebody agrees; nil agrees.
	Confirm func(*List) error
	// ConfirmLoss is called before a stage replaces or destroys anything else, as in a create.
	ConfirmLoss func(context.Context, review.Loss) (bool, error)
}

// List lists what a rollout does, in its order.
type List struct {
	Cluster  string  `json:"cluster"`
	Platform string  `json:"platform"`
	Steps    []*Step `json:"steps"`
	// Obstacles are what would keep a rollout from its end.
	Obstacles []string `json:"obstacles"`
	// Unknown is why a plan cannot list the steps; Command with --dry-run lists them later.
	Unknown string `json:"unknown,omitempty"`
	Command string `json:"command"` // that makes the steps
}

// Mask hides secrets in the texts that are not names of the configuration.
func (l *List) Mask(hide func(string) string) {
	l.Unknown = hide(l.Unknown)
	l.Obstacles = append([]string{}, xslices.Map(l.Obstacles, hide)...) // never null
	for _, s := range l.Steps {
		s.Changes = append([]string{}, xslices.Map(s.Changes, hide)...)
	}
}

type rollout struct {
	run      *run.Run
	options  Options
	machines map[string]*machine
	waits    bool            // for a machine that an interrupted rollout restarts
	fresh    []*config.Stage // what only reads, and was read at readAt
	readAt   time.Time
}

// DryRun lists the steps of a rollout and changes nothing.
func DryRun(ctx context.Context, c *cluster.Cluster, o Options) (*List, error) {
	ctx, r, err := run.BeginChecked(ctx, c, "plan", applied.CleanUp)
	if err != nil {
		return nil, err
	}
	x := &rollout{run: r, options: o, waits: true}
	p, err := x.steps(ctx)
	return p, r.End(err)
}

// Run makes the rollout, and then a create of the stages that were created before: no machine changes.
func Run(ctx context.Context, c *cluster.Cluster, o Options) error {
	ctx, r, err := run.BeginChecked(ctx, c, "rollout", applied.CleanUp)
	if err != nil {
		return err
	}
	x := &rollout{run: r, options: o, waits: true}
	return r.End(x.do(ctx))
}

func (x *rollout) do(ctx context.Context) error {
	p, err := x.steps(ctx)
	if err != nil {
		return err
	}
	if len(p.Obstacles) > 0 {
		return &run.RefusedError{Refused: "the rollout was not begun; nothing was changed",
			Reasons: p.Obstacles}
	}
	if len(p.Steps) > 0 && x.options.Confirm != nil {
		if err := x.options.Confirm(p); err != nil {
			return err
		}
	}
	o := create.Options{Confirm: x.options.ConfirmLoss}
	stages := x.run.Created()
	if len(p.Steps) > 0 {
		machines := machineStages(x.run.Cluster)
		before := slices.DeleteFunc(graph.Closure(stages, run.StageNeeds, machines...),
			func(s *config.Stage) bool { // a confirmation may have taken an hour
				fresh := slices.Contains(x.fresh, s) && time.Since(x.readAt) < time.Minute
				return fresh || slices.Contains(machines, s)
			})
		if err := create.Stages(ctx, x.run, before, o); err != nil {
			return err
		}
		if err := x.backUp(ctx); err != nil {
			return err
		}
		if err := x.pull(ctx, p.Steps); err != nil {
			return err
		}
	}
	for i, s := range p.Steps {
		if err := x.step(ctx, s, i, len(p.Steps)); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(p.Steps, func(s *Step) bool { return s.starts }) {
		return x.do(ctx) // a machine that was stopped tells only now what it runs
	}
	if time.Since(x.readAt) < recent {
		o.Read = x.fresh
	}
	if err := create.Stages(ctx, x.run, stages, o); err != nil {
		return err
	}
	return x.document().Clear()
}

// recent is the age up to which a backup of etcd, or what was read from a secret store, serves for a rollout.
const recent = time.Hour

// backUp backs up etcd, unless there is a recent backup.
func (x *rollout) backUp(ctx context.Context) error {
	if x.options.WithoutBackup {
		return nil
	}
	done, err := backup.Take(ctx, x.run, backup.Options{IfOlderThan: recent})
	if err != nil {
		return fmt.Errorf("no machine was changed: %w\n  --without-backup goes on without a backup", err)
	}
	if done.Taken {
		x.run.Notice("etcd is backed up: " + done.Backup.ID)
	}
	return nil
}

// pull has all machines that get another Talos pull it at once, while they go on: no step waits for a
// registry, and an image that does not exist is found before the first one.
func (x *rollout) pull(ctx context.Context, steps []*Step) error {
	gets := func(s *Step) bool { return s.installs != "" && s.machine.serves() }
	err := errors.Join(run.Each(xslices.Filter(steps, gets), func(s *Step) error {
		node, err := x.open(s.machine)
		if err == nil {
			err = node.Pull(ctx, s.installs)
		}
		if err != nil {
			err = fmt.Errorf("no machine was changed: %s: %w", s.Machine, err)
		}
		return err
	})...)
	return cmp.Or(context.Cause(ctx), err)
}

// steps surveys the cluster and lists the steps.
func (x *rollout) steps(ctx context.Context) (*List, error) {
	if err := x.readSecrets(ctx); err != nil {
		return nil, err
	}
	if err := x.survey(ctx); err != nil {
		return nil, err
	}
	return x.list(ctx)
}

// list lists the steps after the survey.
func (x *rollout) list(ctx context.Context) (*List, error) {
	for _, name := range x.options.Replace {
		if m := x.machines[name]; m == nil || !m.wanted {
			return nil, cluster.Usagef("--replace %s: no such machine; choose one of %s", name,
				strings.Join(slices.Sorted(maps.Keys(x.machines)), ", "))
		} else if m.remade {
			x.run.Notice(name + " was made anew already, by a rollout that this one completes")
		}
	}
	late, err := x.lateness(ctx)
	if err != nil {
		return nil, err
	}
	p := x.newList()
	p.Steps = append(p.Steps, stepsOf(x.sorted(), x.isReplaced, late)...)
	usual := x.usual()
	for _, s := range p.Steps {
		s.UsualSeconds = usual[s.Action]
	}
	if err := x.nameVolumes(ctx, p.Steps); err != nil {
		return nil, err
	}
	p.Obstacles = append(p.Obstacles, x.obstacles(ctx, p.Steps)...)
	return p, nil
}

func (x *rollout) newList() *List {
	return &List{Cluster: x.run.Cluster.Config.Name, Platform: x.run.Cluster.Config.Platform,
		Steps: []*Step{}, Obstacles: []string{}, Command: x.run.Cluster.Command("rollout")}
}

// nameVolumes adds the volumes whose only intact replica is on a machine that ends.
func (x *rollout) nameVolumes(ctx context.Context, steps []*Step) error {
	ends := func(s *Step) bool { return s.Action == Remove || s.Action == Replace }
	if !slices.ContainsFunc(steps, ends) {
		return nil
	}
	volumes, err := kube.LastReplicas(ctx, x.target())
	for _, s := range steps {
		if ends(s) {
			s.Volumes = volumes[s.Node]
		}
	}
	return err
}

// readSecrets reads what only reads, such as the secret store's values, again: they may have been rotated.
func (x *rollout) readSecrets(ctx context.Context) error {
	x.fresh = slices.DeleteFunc(x.run.Created(), func(s *config.Stage) bool {
		return !s.Volatile || s.NeedsPlatform || len(s.Needs) > 0
	})
	if len(x.fresh) == 0 {
		return nil
	}
	defer func() { x.readAt = time.Now() }()
	return create.Stages(ctx, x.run, x.fresh, create.Options{Refresh: true})
}

func (x *rollout) sorted() []*machine {
	return slices.SortedFunc(maps.Values(x.machines), func(a, b *machine) int {
		return strings.Compare(a.name, b.name)
	})
}

func (x *rollout) isReplaced(m *machine) bool {
	return m.replaces || m.left || m.is.ControlPlane != m.controlPlane ||
		slices.Contains(x.options.Replace, m.name) && !m.remade
}

func (x *rollout) target() gate.Target { return x.run.Outputs.Target() }

// controlPlanes are the addresses of the control planes that the cluster has now.
func (x *rollout) controlPlanes(without ...*machine) (addresses []string) {
	for _, m := range x.sorted() {
		if m.joined && !m.left && m.is.ControlPlane && !slices.Contains(without, m) {
			addresses = append(addresses, m.address)
		}
	}
	return addresses
}

// down are the machines of the cluster that do not answer.
func (x *rollout) down() []*machine {
	return slices.DeleteFunc(x.sorted(), func(m *machine) bool { return !m.joined || m.down == nil })
}

// lateness orders control planes: the holder of the virtual address and the leader of etcd come last, so that
// neither moves more often than it must.
func (x *rollout) lateness(ctx context.Context) (func(*machine) int, error) {
	late := map[*machine]int{}
	holder := ""
	for _, s := range machineStages(x.run.Cluster) {
		for _, g := range s.Gates {
			if g.Type.Name != "virtual_ip" {
				continue
			}
			values, diags := g.Values(x.run.Outputs.Scope(s))
			if diags.HasErrors() {
				return nil, diags
			}
			asking, stop := context.WithTimeout(ctx, answerTime)
			var err error
			holder, err = talos.HolderOf(asking, x.target().Talosconfig, x.controlPlanes(x.down()...),
				values.String("address"))
			stop()
			if err != nil {
				x.run.Notice(fmt.Sprintf("cannot ask who holds the virtual address: %v", err))
			}
		}
	}
	for _, m := range x.sorted() {
		if !m.joined || !m.is.ControlPlane || m.down != nil {
			continue
		}
		if m.address == holder {
			late[m] = 1
		}
		node, err := x.open(m)
		if err != nil {
			return nil, err
		}
		if member, err := node.EtcdMember(ctx); err == nil && member.Leads {
			late[m] += 2
		}
	}
	return func(m *machine) int { return late[m] }, nil
}

func (x *rollout) open(m *machine) (*talos.Node, error) {
	return talos.OpenNode(x.target().Talosconfig, m.address)
}

// step makes one step, between two events.
func (x *rollout) step(ctx context.Context, s *Step, i, all int) error {
	e := event.Event{Layer: cluster.PlatformLayer, Machine: s.Machine, Action: string(s.Action)}
	began := time.Now()
	started := e
	started.Kind, started.Total = event.MachineStarted, all
	started.Text = fmt.Sprintf("(%d of %d) %s", i+1, all, s)
	x.run.Emit(started)
	err := x.perform(ctx, s)
	e.Seconds = time.Since(began).Seconds()
	if err != nil {
		e.Kind, e.Text = event.MachineFailed, err.Error()
		x.run.Emit(e)
		if ctx.Err() != nil && s.machine.cordoned {
			x.run.Notice("node " + s.Node + " stays cordoned; the same command completes the step, and " +
				"lifts the cordon")
		}
		return cmp.Or(context.Cause(ctx), error(&StepError{Step: s, Left: all - i - 1, Err: err}))
	}
	e.Kind = event.MachineReady
	x.run.Emit(e)
	return nil
}

// StepError reports the step that failed. No later step was begun.
type StepError struct {
	Step *Step
	Left int // steps that were not begun
	Err  error
}

func (e *StepError) Error() string {
	text := fmt.Sprintf("machine %s: %v", e.Step.Machine, e.Err)
	if e.Left > 0 {
		text += fmt.Sprintf("\n  steps that were not begun: %d", e.Left)
	}
	text += "\n  mend it and go on with the same command"
	if e.Step.Action == Change && !e.Step.machine.upgradesKubernetes() {
		text += ", or set the former values again and go back with it"
	}
	if e.Step.machine.cordoned {
		text += "\n  node " + e.Step.Node + " stays cordoned until then"
	}
	return text
}

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// say reports the progress of a step.
func (x *rollout) say(s *Step) func(string) { return x.detail(s, "") }

// detail reports what a part of a step prints itself.
func (x *rollout) detail(s *Step, part string) func(string) {
	return func(text string) {
		x.run.Emit(event.Event{Kind: event.MachineProgress, Layer: cluster.PlatformLayer, Machine: s.Machine,
			Action: string(s.Action), Step: part, Text: text})
	}
}

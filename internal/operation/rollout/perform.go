package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/drain"
	"github.com/ephemeral-castle/castle/internal/operation/create"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// How long a step waits. A machine that cannot boot a new Talos goes back by itself after at most 70 minutes
// (Talos, BootTimeout). Servers need minutes before they boot at all.
const (
	drainTime   = 30 * time.Minute
	installTime = 20 * time.Minute
	upgradeTime = 75 * time.Minute
	restartTime = 20 * time.Minute
	lateTime    = 10 * time.Minute // of a restart, until castle says what else can be done
	settleTime  = 20 * time.Minute
	rebuildTime = time.Hour     // of replicas that a machine had while it was away
	moveTime    = 4 * time.Hour // of replicas to other machines
)

func (x *rollout) perform(ctx context.Context, s *Step) error {
	if err := x.before(ctx, s); err != nil {
		return fmt.Errorf("the cluster is not as it has to be before the step: %w", err)
	}
	var err error
	switch s.Action {
	case Add:
		err = x.join(ctx, s)
	case Replace:
		if err = x.leave(ctx, s); err == nil {
			err = x.join(ctx, s)
		}
	case Remove:
		err = x.remove(ctx, s)
	case Kubernetes:
		err = x.upgradeControlPlane(ctx, s)
	case Change:
		err = x.change(ctx, s)
	}
	if err != nil {
		return err
	}
	s.done = true
	if err := x.after(ctx, s); err != nil {
		return fmt.Errorf("the cluster is not as it was before the step: %w", err)
	}
	return nil
}

// before waits until the cluster can spare the machine. One that is down, or has left, is spared already.
func (x *rollout) before(ctx context.Context, s *Step) error {
	m := s.machine
	if err := x.settle(ctx, s); err != nil || s.Action == Finish || s.Action == Add ||
		m.joined && !m.serves() || m.cordoned {
		return err // what is unfinished, or new, comes first: nothing is whole before it
	}
	return x.settleServices(ctx, s)
}

// after waits until the cluster is whole again, as far as it can be: another machine may be down, too.
func (x *rollout) after(ctx context.Context, s *Step) error {
	if err := x.settle(ctx, s); err != nil {
		return err
	}
	if err := kube.KeepReplicas(ctx, x.target(), s.Node); err != nil {
		return err
	}
	if err := drain.Uncordon(ctx, x.target(), s.Node); err != nil {
		return err
	}
	s.machine.cordoned = false
	unfinished := func(m *machine) bool {
		return m.joined && !m.serves() || m.cordoned || m.wanted && !m.joined
	}
	if slices.ContainsFunc(x.sorted(), unfinished) {
		return nil // that comes next
	}
	return x.settleServices(ctx, s)
}

// change installs, applies and restarts what a machine gets, with one restart where one suffices.
func (x *rollout) change(ctx context.Context, s *Step) error {
	m := s.machine
	node, err := x.open(m)
	if err != nil {
		return err
	}
	before := m.condition.BootID
	if m.down == nil {
		before, err = x.prepare(ctx, s, node)
	}
	if err == nil && s.applies {
		err = x.apply(ctx, s, false, create.Machine{})
	}
	if err == nil && s.configures {
		err = x.apply(ctx, s, true, create.Machine{})
	}
	condition := talos.Condition{}
	switch {
	case err != nil:
	case s.Restarts:
		condition, err = x.restart(ctx, s, node, before)
	default:
		bounded, stop := context.WithTimeout(ctx, settleTime)
		defer stop()
		err = node.AwaitReady(bounded, x.say(s))
	}
	if err != nil {
		return err
	}
	m.down, m.stopped = nil, false
	return s.proveRelease(condition)
}

// prepare installs what the machine gets while it runs, and empties it. It returns the machine's boot.
func (x *rollout) prepare(ctx context.Context, s *Step, node *talos.Node) (boot string, err error) {
	now, err := node.Condition(ctx)
	if err != nil {
		return "", err
	}
	restartsItself := talos.TraitsOf(now.Release).InstallRestarts
	install := func() error {
		if s.installs == "" {
			return nil
		}
		return x.install(ctx, s, node, now.BootID)
	}
	if !restartsItself { // the machine goes on meanwhile
		if err := install(); err != nil {
			return "", err
		}
	}
	if err := x.empty(ctx, s); err != nil {
		return "", err
	}
	if s.ControlPlane && s.Restarts {
		if err := node.ForfeitLeadership(ctx); err != nil {
			return "", err
		}
	}
	if restartsItself {
		err = install()
	}
	return now.BootID, err
}

// install installs the image, unless an interrupted rollout has done so: Talos keeps two systems on its disk,
// and a second installation before the restart would overwrite the one that runs, Talos' way back.
func (x *rollout) install(ctx context.Context, s *Step, node *talos.Node, boot string) error {
	all, err := x.document().Value()
	if done := all[s.Machine]; err != nil || done.Image == s.installs && done.BootID == boot {
		return err
	}
	bounded, stop := context.WithTimeout(ctx, installTime)
	defer stop()
	x.say(s)("installs " + s.installs)
	if err := node.Install(bounded, s.installs, x.detail(s, "install")); err != nil {
		return err
	}
	return x.record(s.Machine, func(p *progress) { p.Image, p.BootID = s.installs, boot })
}

// empty cordons and drains the machine's node, if the step needs that.
func (x *rollout) empty(ctx context.Context, s *Step) error {
	if !s.Drains {
		return nil
	}
	if err := x.cordon(ctx, s); err != nil {
		return err
	}
	x.say(s)("is drained")
	bounded, stop := context.WithTimeout(ctx, drainTime)
	defer stop()
	return drain.Drain(bounded, x.target(), s.Node, x.options.Force, x.say(s))
}

func (x *rollout) cordon(ctx context.Context, s *Step) error {
	foreign, err := drain.Cordon(ctx, x.target(), s.Node, x.run.ID)
	if err == nil && foreign {
		x.say(s)("is cordoned by somebody else, and stays so")
	}
	s.machine.cordoned = s.machine.cordoned || err == nil && !foreign
	return err
}

// restart restarts the machine, unless what was applied has done so, and waits until it is back.
func (x *rollout) restart(ctx context.Context, s *Step, node *talos.Node, before string) (
	talos.Condition, error) {
	m, say := s.machine, x.say(s)
	switch {
	case s.hardware:
		if err := m.datacenter.Restart(ctx, m.object, say); err != nil {
			return talos.Condition{}, err
		}
	case !x.restartsItself(ctx, s, node, before):
		say("restarts")
		if err := node.Reboot(ctx); err != nil {
			return talos.Condition{}, err
		}
	}
	limit := restartTime
	if s.installs != "" {
		limit = upgradeTime
	}
	bounded, stop := context.WithTimeout(ctx, limit)
	defer stop()
	late := time.AfterFunc(lateTime, func() { x.run.Notice(s.late() + " (Ctrl-C ends the wait)") })
	defer late.Stop()
	condition, err := node.AwaitRestart(bounded, before, say)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w\n  %s", err, s.late())
	}
	return condition, err
}

// late says what to do about a machine that is long in coming back.
func (s *Step) late() string {
	text := "if it stays dead, the same command with --replace " + s.Machine + " makes it anew"
	if s.installs != "" {
		text = "a new Talos that cannot boot goes back by itself within 70 minutes; " + text
	}
	return s.Machine + " should be back by now, and its console tells what it does; " + text
}

// restartsItself reports whether the machine restarts, or has restarted, because of what it has got.
func (x *rollout) restartsItself(ctx context.Context, s *Step, node *talos.Node, before string) bool {
	restarts := func(e effect.Effect) bool { return e.Kind == effect.Restarts }
	traits := talos.TraitsOf(s.machine.condition.Release)
	expected := s.installs != "" && traits.InstallRestarts ||
		s.configures && slices.ContainsFunc(s.machine.configuration, restarts) && traits.ApplyRestarts
	begun := func(ctx context.Context) error {
		if now, err := node.Condition(ctx); err == nil && now.BootID == before && now.Stage == "running" {
			return errors.New("the machine has not begun to restart")
		}
		return nil
	}
	if !expected {
		return begun(ctx) == nil
	}
	soon, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	return waiting.Until(soon, func(string) {}, begun) == nil
}

// proveRelease compares what runs after a restart with what was installed.
func (s *Step) proveRelease(is talos.Condition) error {
	schematic, release := talos.Installs(s.installs)
	switch {
	case s.installs == "":
		return nil
	case is.Release != release:
		return fmt.Errorf("release %s of Talos was installed, and the machine has gone back to %s: the new "+
			"one could not boot it, and Talos rolled back\n  its console and `talosctl -n %s dmesg` "+
			"tell why", release, is.Release, s.Address)
	case schematic != "" && is.Schematic != "" && is.Schematic != schematic:
		return fmt.Errorf("the schematic %s was installed, and the machine runs %s: it has rolled back by "+
			"itself; an image that lacks an extension which the configuration needs does that", schematic,
			is.Schematic)
	}
	return nil
}

// apply applies the plans of one machine: of its configuration, or of everything else that stands for it.
func (x *rollout) apply(ctx context.Context, s *Step, configuration bool, also create.Machine) error {
	for _, stage := range machineStages(x.run.Cluster) {
		also.Addresses = xslices.Filter(s.machine.resources[stage], func(address string) bool {
			return isConfiguration(address) == configuration
		})
		if len(also.Addresses) == 0 {
			continue
		}
		change := also
		change.Name, change.Confirmed = s.Machine, s.machine.effects()
		change.Replace = xslices.Filter(also.Replace, func(address string) bool {
			return slices.Contains(also.Addresses, address)
		})
		if err := create.Change(ctx, x.run, stage, change); err != nil {
			return x.run.Failed(ctx, stage.Layer, stage.Name, err)
		}
		for _, one := range x.run.Outputs.Machines() { // one that is made anew may get another lease
			if one.Name == s.Machine {
				s.machine.address = one.Address
			}
		}
	}
	return nil
}

// isConfiguration reports whether a resource is a machine's configuration.
func isConfiguration(address string) bool { return strings.HasPrefix(address, review.ApplyType+".") }

// upgradeControlPlane changes the images of one control plane's components. Its kubelet follows with its
// configuration, once no API server is older.
func (x *rollout) upgradeControlPlane(ctx context.Context, s *Step) error {
	node, err := x.open(s.machine)
	if err != nil {
		return err
	}
	release := s.machine.will.APIServer
	if _, err := node.SetRelease(ctx, release, talos.ControlPlaneImages()); err != nil {
		return err
	}
	bounded, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	err = waiting.Until(bounded, x.say(s), func(ctx context.Context) error {
		is, err := kube.ServerRelease(ctx, x.target(), s.Address)
		if err == nil && is != release {
			err = fmt.Errorf("its API server is still that of %s", is)
		}
		return err
	})
	if err != nil {
		return err
	}
	return node.AwaitReady(bounded, x.say(s))
}

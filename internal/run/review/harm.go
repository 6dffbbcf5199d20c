package review

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// HarmError reports that castle left a stage unchanged because its plan harms machines of a cluster that
// runs. Terraform would change all of them at once.
type HarmError struct {
	Machines []Affected
	rollout  string // the command that changes one machine after the other
}

// Affected is a machine, and what a plan does to it.
type Affected struct {
	Name, Node string // worker-01, blue-worker-01
	Place      string // VM 422 on node pve, or an address
	Address    string // of the resource that changes
	Effects    []effect.Effect
	Disks      []string // with their sizes
	Volumes    []string // Longhorn's volumes that have no intact replica elsewhere
}

// String says what the machine does: worker-01 (VM 422 on node pve) would be interrupted: …
func (m Affected) String() string {
	return fmt.Sprintf("%s (%s) %s: %s", m.Name, m.Place, effect.Worst(m.Effects).Fate(),
		effect.Texts(m.Effects))
}

// Lines are String, its disks, and the data that is nowhere else.
func (m Affected) Lines() []string {
	lines := []string{m.String()}
	if len(m.Disks) > 0 {
		lines = append(lines, "  its disks: "+strings.Join(m.Disks, ", "))
	}
	if len(m.Volumes) > 0 {
		lines = append(lines, "  the only intact replica of Longhorn's volumes: "+names(m.Volumes))
	}
	return lines
}

func (e *HarmError) Error() string {
	lines := []string{"it would harm machines of a cluster that runs; nothing was changed:"}
	var ways []string
	possible, lost := true, ""
	for _, m := range e.Machines {
		lines = append(lines, m.Lines()...)
		for _, one := range m.Effects {
			possible = possible && one.Kind != effect.Impossible
			if one.Remedy != "" && !slices.Contains(ways, one.Remedy) {
				ways = append(ways, one.Remedy)
			}
		}
		if effect.Worst(m.Effects) == effect.LosesData {
			lost += " --replace " + m.Name
		}
	}
	if possible {
		ways = append(ways, "set the former values again, or change one machine after the other: "+
			e.rollout+lost)
	}
	return strings.Join(append(lines, ways...), "\n  ")
}

// ExceedsError reports that castle left a stage unchanged: its plan does more than a confirmed step.
type ExceedsError struct {
	Machine string
	Changes []string
	Again   string // the command that confirms anew
}

func (e *ExceedsError) Error() string {
	return "the plan for " + e.Machine + " does more than was confirmed; nothing was changed:\n  " +
		strings.Join(e.Changes, "\n  ") + "\n  something has changed meanwhile; look again: " + e.Again +
		" --dry-run"
}

// CheckMachines returns a *NodeError if a plan takes nodes out of a cluster that runs, as checkNodes says, or
// a *HarmError if it harms machines of one. It also returns what takes effect when a machine restarts. before
// is the stage's state; what is outdated has configured an earlier machine.
func CheckMachines(ctx context.Context, r *run.Run, before *state.State, intent *state.Intent,
	plan *terraform.Plan, outdated []string) (pending []Affected, err error) {
	if err := checkNodes(ctx, r, before, intent, plan); err != nil {
		return nil, err
	}
	all, err := Effects(ctx, r, before, intent, plan, outdated)
	if err != nil {
		return nil, err
	}
	e := &HarmError{rollout: r.Cluster.Command("rollout")}
	for _, m := range all {
		if harmful := effect.Harmful(m.Effects); len(harmful) > 0 {
			m.Effects = harmful
			e.Machines = append(e.Machines, m)
		} else if effect.Worst(m.Effects) == effect.Pending {
			m.Effects = xslices.Filter(m.Effects, func(e effect.Effect) bool { return e.Kind != effect.None })
			pending = append(pending, m)
		}
	}
	if len(e.Machines) == 0 {
		return pending, nil
	}
	return nil, e
}

// Effects returns what a plan does to the machines of a cluster that runs, by name; a machine that several
// resources stand for is listed for each. before is the stage's state; what is outdated has configured an
// earlier machine. A cluster that does not run has no effects.
func Effects(ctx context.Context, r *run.Run, before *state.State, intent *state.Intent,
	plan *terraform.Plan, outdated []string) (all []Affected, err error) {
	changes := slices.DeleteFunc(slices.Clone(plan.Changes), func(c terraform.Change) bool {
		return c.Action != "update" && c.Action != "replace" || c.Reason == "tainted" ||
			intent.Replaces(c.Address) || !isJudged(c.Type) || !before.Has(c.Address) ||
			slices.Contains(outdated, c.Address)
	})
	if len(changes) == 0 {
		return nil, nil
	}
	access, _, err := accessOf(r)
	if err != nil || access.Kubeconfig == nil {
		return nil, err
	}
	differing, _, err := plan.Differences(ctx)
	if err != nil {
		return nil, err
	}
	h := harm{run: r, access: access}
	for _, c := range changes {
		m, err := h.of(ctx, c, before, differing[c.Address].Differences)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b Affected) int { return strings.Compare(a.Name, b.Name) })
	h.nameVolumes(ctx, all)
	return all, nil
}

// ApplyType is the resource that gives a machine its configuration.
const ApplyType = "talos_machine_configuration_apply"

// isJudged reports whether a change of a resource of a type reaches a machine.
func isJudged(typ string) bool { return typ == ApplyType || cluster.Platforms().IsMachine(typ) }

type harm struct {
	run    *run.Run
	access gate.Target
}

func (h harm) of(ctx context.Context, c terraform.Change, before *state.State,
	differences []planned.Difference) (Affected, error) {
	name, keyed := terraform.KeyOf(c.Address)
	if !keyed {
		name = c.Address
	}
	m := Affected{Name: name, Node: h.run.Cluster.Config.Name + "-" + name, Address: c.Address}
	is := func(res state.Resource) bool { return res.Address == c.Address && !res.Deposed }
	was := before.Resources[slices.IndexFunc(before.Resources, is)].Attributes
	if c.Type == ApplyType {
		m.Place, _ = was["node"].(string)
		var err error
		m.Effects, err = h.configured(ctx, m.Place, c.Action == "replace", differences)
		return m, err
	}
	of := cluster.Platforms().OfResource(c.Type)
	m.Effects = of.Effects(was, c.Action == "replace", differences)
	m.Place, m.Disks = of.Describe(was)
	return m, nil
}

// configured returns what a new configuration does to the machine at an address. It compares with what the
// machine has now, if it answers: somebody may have made the change there already.
func (h harm) configured(ctx context.Context, address string, replaces bool,
	differences []planned.Difference) (all []effect.Effect, err error) {
	if replaces {
		return []effect.Effect{{Kind: effect.Replaces, Text: "configured anew"}}, nil
	}
	for _, d := range differences {
		switch d.Path {
		case "node", "endpoint":
			all = append(all, effect.Effect{Kind: effect.Impossible, Text: d.Text(),
				Remedy: "a machine keeps its address; set the former one again"})
		case "machine_configuration_input":
			was, _ := d.Was.(string)
			is, known := d.Is.(string)
			asking, stop := context.WithTimeout(ctx, answerTime)
			active, askErr := talos.ActiveConfig(asking, h.access.Talosconfig, address)
			stop()
			if askErr == nil {
				was = string(active)
			}
			if d.Unknown || !known {
				all = append(all, effect.Effect{Kind: effect.Restarts,
					Text: "its new configuration is not known yet"})
				continue
			}
			effects, err := talos.Effects([]byte(was), []byte(is))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", address, err)
			}
			all = append(all, effects...)
		}
	}
	return all, nil
}

// nameVolumes adds the volumes that stand on the machines alone. A cluster that does not answer has told
// nothing: no refusal depends on it.
func (h harm) nameVolumes(ctx context.Context, machines []Affected) {
	loses := func(m Affected) bool {
		w := effect.Worst(m.Effects)
		return w == effect.Replaces || w == effect.LosesData
	}
	if !slices.ContainsFunc(machines, loses) {
		return
	}
	asking, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	volumes, err := kube.LastReplicas(asking, h.access)
	for i, m := range machines {
		if loses(m) {
			machines[i].Volumes = volumes[m.Node]
			if err != nil {
				machines[i].Volumes = []string{"unknown, because the cluster does not answer"}
			}
		}
	}
}

package review

import (
	"cmp"
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
	Machines []Harmed
	create   string // the command that goes on
}

// Harmed is a machine, and what a plan does to it.
type Harmed struct {
	Name, Node string // worker-01, blue-worker-01
	Place      string // VM 422 on node pve, or an address
	Effects    []effect.Effect
	Disks      []string // with their sizes
	Volumes    []string // Longhorn's volumes that have no intact replica elsewhere
}

// String says what the machine does: worker-01 (VM 422 on node pve) would be interrupted: …
func (m Harmed) String() string {
	return fmt.Sprintf("%s (%s) %s: %s", m.Name, m.Place, effect.Worst(m.Effects).Fate(),
		effect.Texts(m.Effects))
}

func (e *HarmError) Error() string {
	var b strings.Builder
	b.WriteString("it would harm machines of a cluster that runs; nothing was changed:")
	var remedies []string
	possible, replaced, once := false, true, ""
	for _, m := range e.Machines {
		replaced = replaced && effect.Worst(m.Effects) == effect.Replaces
		for _, one := range m.Effects {
			possible = possible || one.Kind != effect.Impossible
			remedy := strings.Replace(one.Remedy, "talosctl ", "talosctl -n "+m.Place+" ", 1)
			if one.Once {
				once = cmp.Or(once, remedy)
			} else if remedy != "" && !slices.Contains(remedies, remedy) {
				remedies = append(remedies, remedy)
			}
		}
		b.WriteString("\n  " + m.String())
		if len(m.Disks) > 0 {
			b.WriteString("\n    its disks: " + strings.Join(m.Disks, ", "))
		}
		if len(m.Volumes) > 0 {
			b.WriteString("\n    the only intact replica of Longhorn's volumes: " + names(m.Volumes))
		}
	}
	if once != "" {
		b.WriteString("\n  set the former value again, or: " + once)
	}
	if !possible || len(remedies) == 0 && once != "" {
		for _, remedy := range remedies {
			b.WriteString("\n  " + remedy)
		}
		return b.String()
	}
	node := e.Machines[0].Node
	drain := "\n    kubectl drain " + node + " --ignore-daemonsets --delete-emptydir-data"
	if replaced {
		return b.String() + "\n  set the former values again, or change one machine at a time; its disks " +
			"are destroyed:" + drain + "\n    wait until Longhorn's volumes are healthy without it\n    " +
			e.create + " --force-node-removal"
	}
	b.WriteString("\n  set the former values again, or make the change by hand, on one machine after the " +
		"other:" + drain)
	for _, remedy := range remedies {
		b.WriteString("\n    " + remedy)
	}
	fmt.Fprintf(&b, "\n    wait until it is Ready, etcd has all members and Longhorn's volumes are healthy\n"+
		"    kubectl uncordon %s", node)
	return b.String() + "\n  then nothing is left to change: " + e.create
}

// CheckMachines returns a *NodeError if a plan takes nodes out of a cluster that runs, as checkNodes says, or
// a *HarmError if it harms machines of one. It also returns what takes effect when a machine restarts. before
// is the stage's state; what is outdated has configured an earlier machine. With force, nodes may go, and one
// machine may be replaced.
func CheckMachines(ctx context.Context, r *run.Run, before *state.State, intent *state.Intent,
	plan *terraform.Plan, outdated []string, force bool) (pending []Harmed, err error) {
	if err := checkNodes(ctx, r, before, intent, plan, force); err != nil {
		return nil, err
	}
	changes := slices.DeleteFunc(slices.Clone(plan.Changes), func(c terraform.Change) bool {
		return c.Action != "update" && c.Action != "replace" || c.Reason == "tainted" ||
			intent.Replaces(c.Address) || !isJudged(c.Type) || !before.Has(c.Address) ||
			slices.Contains(outdated, c.Address)
	})
	if len(changes) == 0 {
		return nil, nil
	}
	access, err := accessOf(r)
	if err != nil || access.Kubeconfig == nil {
		return nil, err
	}
	differing, _, err := plan.Differences(ctx)
	if err != nil {
		return nil, err
	}
	h := harm{run: r, access: access}
	e := &HarmError{create: r.Cluster.Command("create")}
	for _, c := range changes {
		m, err := h.of(ctx, c, before, differing[c.Address].Differences)
		if err != nil {
			return nil, err
		}
		harmful := effect.Harmful(m.Effects)
		if len(harmful) > 0 {
			m.Effects = harmful
			e.Machines = append(e.Machines, m)
		} else if effect.Worst(m.Effects) == effect.Pending {
			m.Effects = xslices.Filter(m.Effects, func(e effect.Effect) bool { return e.Kind != effect.None })
			pending = append(pending, m)
		}
	}
	isReplaced := len(e.Machines) == 1 && effect.Worst(e.Machines[0].Effects) == effect.Replaces
	if len(e.Machines) == 0 || force && isReplaced {
		return pending, nil
	}
	slices.SortFunc(e.Machines, func(a, b Harmed) int { return strings.Compare(a.Name, b.Name) })
	h.nameVolumes(ctx, e.Machines)
	return nil, e
}

// applyType is the resource that gives a machine its configuration.
const applyType = "talos_machine_configuration_apply"

// isJudged reports whether a change of a resource of a type reaches a machine.
func isJudged(typ string) bool { return typ == applyType || cluster.Platforms().IsMachine(typ) }

type harm struct {
	run    *run.Run
	access gate.Target
}

func (h harm) of(ctx context.Context, c terraform.Change, before *state.State,
	differences []planned.Difference) (Harmed, error) {
	name, keyed := terraform.KeyOf(c.Address)
	if !keyed {
		name = c.Address
	}
	m := Harmed{Name: name, Node: h.run.Cluster.Config.Name + "-" + name}
	is := func(res state.Resource) bool { return res.Address == c.Address && !res.Deposed }
	was := before.Resources[slices.IndexFunc(before.Resources, is)].Attributes
	if c.Type == applyType {
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
// nothing: the refusal does not depend on it.
func (h harm) nameVolumes(ctx context.Context, machines []Harmed) {
	asking, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	volumes, err := kube.LastReplicas(asking, h.access)
	for i, m := range machines {
		if w := effect.Worst(m.Effects); w == effect.Replaces || w == effect.LosesData {
			machines[i].Volumes = volumes[m.Node]
			if err != nil {
				machines[i].Volumes = []string{"unknown, because the cluster does not answer"}
			}
		}
	}
}

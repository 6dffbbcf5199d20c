package talos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/gen/xslices"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// versionType is the gate of an upgrade that a changed configuration does not make: Talos writes the release
// that its configuration names to the disk when it installs itself, and then only if it is upgraded.
func versionType() gate.Type {
	return gate.Type{
		Name:    "talos_version",
		Summary: "every machine runs the wanted release of Talos, with the schematic of its installer",
		Attributes: map[string]gate.Attribute{
			"version": {Type: cty.String, Required: true, Help: "The release, such as v1.13.0."},
			"machines": {Type: cty.Map(cty.String), Required: true,
				Help: "Every machine's own address, by its name."},
			"installers": {Type: cty.Map(cty.String), Required: true,
				Help: "The image that upgrades each machine to the release; its schematic is wanted, too."},
		},
		Talos: true,
		New: func(name string, target gate.Target, values gate.Values) (gate.Gate, error) {
			m, err := newMachines(target.Talosconfig, values)
			g := versionGate{version: values.String("version"), names: map[string]string{},
				schematics: map[string]string{}}
			var machines, installers map[string]string
			if err == nil {
				err = errors.Join(values.Decode("machines", &machines),
					values.Decode("installers", &installers))
			}
			if err == nil && len(machines) == 0 {
				err = errors.New("machines is empty; name at least one")
			}
			if err != nil {
				return gate.Gate{}, fmt.Errorf("gate %s: %w", name, err)
			}
			for machine, address := range machines {
				g.names[address] = machine
				g.schematics[address], _ = Installs(installers[machine])
			}
			m.endpoints = slices.Sorted(maps.Keys(g.names))
			check := func(ctx context.Context) error {
				nodes, err := m.queryNodes(ctx, "the release of Talos", readRelease)
				if err != nil {
					return err
				}
				return g.compare(nodes)
			}
			return gate.Gate{Name: name, Check: check, Diagnose: m.diagnosis(g.cause)}, nil
		},
	}
}

type versionGate struct {
	version           string
	names, schematics map[string]string // by address
}

// readRelease reads the release that runs, and whether the machine is about to run another one. It asks for
// this first: between the answers, a machine may have left the release for the next one, never the reverse.
func readRelease(ctx context.Context, c *client.Client, n *nodeView) error {
	status, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
	switch {
	case state.IsNotFoundError(err): // the release alone decides then
	case err != nil:
		return err
	default:
		switch status.TypedSpec().Stage {
		case runtime.MachineStageUpgrading, runtime.MachineStageRebooting, runtime.MachineStageShuttingDown:
			n.leaving = true
		}
	}
	answer, err := first(c.Version(ctx))
	if err != nil {
		return err
	}
	if n.release = answer.GetVersion().GetTag(); n.release == "" {
		return errors.New("does not tell its release")
	}
	n.schematic, err = readSchematic(ctx, c)
	return err
}

// others are the machines that run another release, or another schematic of it. Not every image has one.
func (g versionGate) others(nodes []nodeView) []nodeView {
	return slices.DeleteFunc(slices.Clone(nodes), func(n nodeView) bool {
		return n.release == "" || n.release == g.version && !g.differs(n)
	})
}

func (g versionGate) differs(n nodeView) bool {
	wanted := g.schematics[n.endpoint]
	return wanted != "" && n.schematic != "" && n.schematic != wanted
}

// compare waits for machines that do not answer, and for those that are being upgraded. Nobody else upgrades
// a machine: no waiting changes its release.
func (g versionGate) compare(nodes []nodeView) error {
	problems, others := problemsOf(nodes), g.others(nodes)
	if len(others) == 0 {
		if len(problems) == 0 {
			return nil
		}
		return notReady(fmt.Sprintf("%d of %d machines run Talos %s", len(nodes)-len(problems), len(nodes),
			g.version), problems)
	}
	by, wanted := map[string][]string{}, "Talos "+g.version
	schematics := map[string]bool{}
	for _, n := range others {
		what := n.release
		if n.release == g.version {
			schematics[g.schematics[n.endpoint]] = true
			what += " with the schematic " + n.schematic
		}
		by[what] = append(by[what], fmt.Sprintf("%s (%s)", g.names[n.endpoint], n.host()))
	}
	if len(schematics) > 0 {
		wanted += " with the schematic " + strings.Join(slices.Sorted(maps.Keys(schematics)), " or ")
	}
	runs := xslices.Map(slices.Sorted(maps.Keys(by)),
		func(release string) string { return release + " runs on " + strings.Join(by[release], ", ") })
	at := slices.IndexFunc(others, func(n nodeView) bool { return !n.leaving })
	if at < 0 {
		return notReady(fmt.Sprintf("%s is wanted; %s, being upgraded", wanted, strings.Join(runs, "; ")),
			problems)
	}
	former := fmt.Sprintf("talos_version = %q", others[at].release)
	if others[at].release == g.version {
		former = fmt.Sprintf("talos_schematic_id = %q or the former talos_extensions", others[at].schematic)
	}
	err := notReady(fmt.Sprintf("%s is wanted; %s", wanted, strings.Join(runs, "; ")), problems,
		"castle rollout upgrades one machine after the other; or set "+former+" again; or castle recreate")
	return gate.Permanent(&gate.Finding{Kind: gate.UpgradeNeeded, Err: err})
}

// cause names the command for the first machine to upgrade.
func (g versionGate) cause(nodes []nodeView) gate.Diagnosis {
	if slices.ContainsFunc(g.others(nodes), func(n nodeView) bool { return !n.leaving }) {
		return gate.Diagnosis{Look: "castle rollout", Cause: "a machine keeps the Talos of its disk " +
			"until it is upgraded; another talos_version alone changes only new machines"}
	}
	return unreachable(nodes)
}

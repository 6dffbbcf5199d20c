package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bench measures commands and collects the measures.
type bench struct {
	options  options
	programs programs
	dir      string // for everything that the tools write
	samples  samples
}

// What is measured.
const (
	rootsPlugins  = "plugins"
	rootsCluster  = "cluster"
	rootsData     = "data"
	rootsWide     = "wide"
	rootsThousand = "thousand" // of castle alone
	rootsCommands = "commands" // likewise
	rootsTyped    = "typed"    // likewise, in the lab

	phaseCreate    = "create"
	phaseUnchanged = "unchanged"
	phaseChanged   = "one changed"
	phaseDestroy   = "destroy"

	phaseCheckAll  = "check of 100 clusters"
	phaseCheckBlue = "check blue"
	phaseVersion   = "version"
	phaseList      = "list of 20 clusters"
	phaseStatus    = "status of a live blue"
	phaseComplete  = "completion"
)

var (
	allRoots = []string{rootsPlugins, rootsCluster, rootsData, rootsWide, rootsThousand, rootsCommands,
		rootsTyped}
	allPhases = []string{phaseCreate, phaseUnchanged, phaseChanged, phaseDestroy, phaseCheckAll,
		phaseCheckBlue, phaseVersion, phaseList, phaseStatus, phaseComplete}
	allTools = []string{castleTool, shellTool, terragruntTool}
)

func (b *bench) data(ctx context.Context) error {
	return b.alternate(ctx, roots{name: rootsData, units: build(1, remembered), rounds: b.options.rounds})
}

func (b *bench) wide(ctx context.Context) error {
	return b.alternate(ctx, roots{name: rootsWide, units: build(b.options.copies, remembered),
		rounds: b.options.wideRounds})
}

func (b *bench) plugins(ctx context.Context) error {
	units := build(1, plugged)
	for i := range units {
		units[i].castle = gates[units[i].layer]
	}
	return b.provided(ctx, rootsPlugins, units)
}

// cluster is measured for the destroy: castle does not contact what ends with the machines.
func (b *bench) cluster(ctx context.Context) error {
	units := build(1, clustered)
	for i := range units {
		if units[i].layer == platformLayer {
			units[i].castle, units[i].ends = gates[platformLayer], true
		}
	}
	return b.provided(ctx, rootsCluster, units)
}

// provided measures roots that need providers and the systems that these reach.
func (b *bench) provided(ctx context.Context, name string, units []unit) (err error) {
	dir := filepath.Join(b.dir, name)
	d, err := start(dir)
	if err != nil {
		return err
	}
	defer d.stop()
	r := roots{name: name, units: units, rounds: b.options.rounds, env: d.env, end: d.cluster.end, warm: true}
	for i := range r.units {
		r.units[i].castle = strings.ReplaceAll(r.units[i].castle, "CA_FILE", d.ca)
	}
	r.installation, err = mirror(filepath.Join(dir, "mirror"), filepath.Dir(b.programs.castle))
	if err != nil {
		return err
	}
	return b.alternate(ctx, r)
}

// thousandCopies are about a thousand units. Beside the wide roots they tell whether castle is linear.
const thousandCopies = 167

func (b *bench) thousand(ctx context.Context) error {
	return b.alternate(ctx, roots{name: rootsThousand, units: build(thousandCopies, remembered), rounds: 1,
		only: castleTool})
}

// roots are what all tools are measured on.
type roots struct {
	name         string
	units        []unit
	rounds       int
	env          []string // for all tools
	installation string   // for Terraform's configuration: where providers come from
	end          func()   // is called after each destroy; may be nil
	only         string   // the only tool to measure, if any
	warm         bool     // fill the plugin caches before the first round
}

// alternate lets each tool do everything once in each round. Another tool begins each round, because what
// comes first finds colder caches.
func (b *bench) alternate(ctx context.Context, r roots) error {
	dir := filepath.Join(b.dir, r.name)
	config := tree{"terraformrc": "disable_checkpoint = true\n" + r.installation}
	if err := config.write(dir); err != nil {
		return err
	}
	env := append(r.env, "TF_CLI_CONFIG_FILE="+filepath.Join(dir, "terraformrc"))
	tools, err := newTools(dir, r.units, b.programs, b.options.parallel, env)
	if err != nil {
		return err
	}
	if r.only != "" {
		tools = slices.DeleteFunc(tools, func(t tool) bool { return t.name != r.only })
	}
	for _, t := range tools {
		if !r.warm {
			break
		}
		fmt.Fprintf(os.Stderr, "bench: %s: filling the plugin cache of %s\n", r.name, t.name)
		for _, args := range [][]string{t.warm, t.destroy} {
			if _, err := t.run(ctx, args); err != nil {
				return err
			}
		}
		if r.end != nil {
			r.end()
		}
	}
	like := map[string]int{}
	for round := range r.rounds {
		for i := range tools {
			t := tools[(i+round)%len(tools)]
			fmt.Fprintf(os.Stderr, "bench: %s, round %d of %d: %s\n", r.name, round+1, r.rounds, t.name)
			if err := b.round(ctx, r, t, like); err != nil {
				return err
			}
		}
	}
	return nil
}

// round is one tool's turn: from nothing to nothing.
func (b *bench) round(ctx context.Context, r roots, t tool, like map[string]int) error {
	if err := t.reset(); err != nil {
		return err
	}
	step := func(phase string, args []string) error {
		m, err := t.run(ctx, args)
		k := key{r.name, phase, t.name}
		b.samples[k] = append(b.samples[k], m)
		return err
	}
	if err := step(phaseCreate, t.create); err != nil {
		return err
	}
	if err := t.created(r.units, like); err != nil {
		return err
	}
	if err := step(phaseUnchanged, t.create); err != nil {
		return err
	}
	if len(r.units) == len(shape) { // the variable is the same in all copies
		if err := t.setValues(sizeAfter); err != nil {
			return err
		}
		if err := step(phaseChanged, t.create); err != nil {
			return err
		}
	}
	if err := step(phaseDestroy, t.destroy); err != nil {
		return err
	}
	if r.end != nil {
		r.end()
	}
	return t.destroyed()
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/operation/waves"
)

// fleetOptions are the flags of the commands for many clusters.
type fleetOptions struct {
	command  string
	choose   string
	chosen   fleet.Selector // choose, parsed
	all      bool
	parallel int
	approved []string // waves
	restart  bool
	gates    bool     // of status
	byCode   bool     // of plan
	extra    []string // that follow --, for the command of each cluster
}

func newFleet(a *app) *cobra.Command {
	return group("fleet", "Plan, create, change and destroy many clusters in waves",
		`Run one command on many clusters, wave by wave. fleet.hcl cuts the clusters into waves by
their labels; without it one wave has all. The command of each cluster is a castle of its
own, with its own lock. A cluster that is locked, protected or away is a result.`,
		newFleetPlan(a), newFleetStatus(a),
		newFleetChange(a, "create", "Create clusters, or resume a run",
			`Run castle create on each cluster, in waves. `),
		newFleetChange(a, "rollout", "Bring running clusters to their configuration",
			`Run castle rollout on each cluster, in waves. castle changes machines only with --yes. `),
		newFleetChange(a, "backup", "Back up the etcd of clusters, and their data",
			`Run castle backup on each cluster, in waves. No wave pauses, soaks or needs an approval, and
each run begins anew. -- --if-older-than 6h leaves out clusters with a newer backup. `),
		newFleetChange(a, "destroy", "Destroy clusters",
			`Run castle destroy on each cluster, in waves, after one question that names them all; without
a terminal it requires --yes. No wave pauses, soaks or needs an approval. `))
}

// selectionOf adds the flags that choose clusters.
func (o *fleetOptions) selectionOf(cmd *cobra.Command, all bool) {
	cmd.Flags().StringVarP(&o.choose, selectFlag, "l", "", "only clusters whose labels the `SELECTOR` "+
		"chooses, such as env=staging,site!=rome")
	cmd.Flags().IntVar(&o.parallel, "parallel", 4, "how many clusters at a time, if the wave does not say it")
	if all {
		cmd.Flags().BoolVar(&o.all, "all", false, "all clusters")
	}
}

// onlyFlags accepts nothing but the flags for the command of each cluster, which follow --. castle itself
// reads the output of each command.
func onlyFlags(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 0 && len(args) > 0 {
		return errors.New("clusters are chosen with --select; flags for each command follow --")
	}
	for _, flag := range args {
		switch name, _, _ := strings.Cut(flag, "="); name {
		case "-o", "--output", "--dry-run":
			return fmt.Errorf("%s after --: castle reads what each command prints; run it on a cluster alone",
				name)
		}
	}
	return nil
}

// fleetOf reads the clusters that the flags choose, in their waves. must is whether one of the flags is
// needed: nobody changes all clusters by forgetting one.
func (a *app) fleetOf(cmd *cobra.Command, o *fleetOptions, must bool) (*fleet.Fleet, cluster.Options, error) {
	options, err := a.complete(cluster.Options{})
	if err != nil {
		return nil, options, err
	}
	given := cmd.Flags().Changed(selectFlag)
	switch {
	case given && strings.TrimSpace(o.choose) == "":
		return nil, options, refuse("--%s is empty; --all chooses every cluster", selectFlag)
	case given && o.all:
		return nil, options, refuse("--%s and --all exclude each other", selectFlag)
	case must && !given && !o.all:
		return nil, options, usageError(cmd, fmt.Errorf("choose clusters with --%s, or --all", selectFlag))
	case o.parallel < 1:
		return nil, options, refuse("--parallel %d: give at least 1", o.parallel)
	}
	chosen, err := fleet.ParseSelector(o.choose)
	if err != nil {
		return nil, options, refuse("--%s: %v", selectFlag, err)
	}
	o.choose, o.chosen = chosen.String(), chosen
	f, diags := fleet.Load(options.Repository)
	if diags.HasErrors() {
		return nil, options, &cluster.ConfigError{Diagnostics: diags, Files: f.Files}
	}
	for _, w := range f.Waves {
		if w.At.Filename != "" && len(w.Clusters) == 0 {
			a.interrupts.say(fmt.Sprintf("castle: note: no cluster is in wave %s of %s", w.Name, fleet.File))
		}
	}
	f = f.Select(chosen)
	switch {
	case len(f.Waves)+len(f.Unassigned) == 0 && chosen.All():
		return nil, options, refuse("the repository has no cluster; `castle new` adds one")
	case len(f.Waves)+len(f.Unassigned) == 0:
		return nil, options, refuse("no cluster has such labels: %s; `castle list` shows the labels", chosen)
	case must && len(f.Unassigned) > 0:
		return nil, options, refuse("no wave of %s has %s; add a wave that matches, or choose others",
			fleet.File, strings.Join(fleet.Names(f.Unassigned), ", "))
	}
	return f, options, nil
}

// title names the command and its clusters: create env=staging.
func (o *fleetOptions) title() string {
	return o.command + " " + textIf(o.choose == "", "all clusters") + o.choose
}

// children returns how castle runs itself for each cluster. Pipelines get the report of the fleet alone.
func (a *app) children(options cluster.Options) (*waves.Children, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	clashes := check.Clashes(options.Config())
	var flags []string
	if a.directory != "." {
		flags = append(flags, "--directory", a.directory)
	}
	if a.stateDir != "" {
		flags = append(flags, "--state-dir", a.stateDir)
	}
	if a.parallelism > 0 {
		flags = append(flags, "--parallelism", strconv.Itoa(a.parallelism))
	}
	c := &waves.Children{Program: self, Name: os.Args[0], Flags: flags}
	c.Variables = func(name string) []string {
		if clashes[name] {
			return nil // its own castle finds and reports it
		}
		return []string{check.Compared + "=1"}
	}
	c.Environ = slices.DeleteFunc(slices.Clone(a.environ), func(entry string) bool {
		return strings.HasPrefix(entry, "GITHUB_") || strings.HasPrefix(entry, "GITLAB_CI=")
	})
	relay := func(times int) {
		switch times {
		case 1:
			a.interrupts.say("castle: interrupted; the commands of the clusters finish what they have begun")
		case 2:
			a.interrupts.say("castle: the next interrupt has them kill Terraform, which loses what it does")
		}
		c.Signal(times)
	}
	a.interrupts.update(func(i *interrupts) { i.relay = relay })
	return c, nil
}

// closedGatesOf returns a look at the gates of a cluster: why not all are open, or "".
func closedGatesOf(children *waves.Children) func(ctx context.Context, name string) string {
	return func(ctx context.Context, name string) string {
		x := children.Run(ctx, nil, "status", name, "--exit-code", "-o", "json")
		if x.Code == 0 && x.Err == nil {
			return ""
		}
		return x.Closed()
	}
}

// approve returns how a wave gets its approval: by --approve, or by a question on a terminal.
func (a *app) approve(o *fleetOptions) func(context.Context, *fleet.Wave) (string, error) {
	answers := answersOf(a)
	return func(ctx context.Context, w *fleet.Wave) (string, error) {
		if slices.Contains(o.approved, w.Name) {
			return cluster.Self(), nil
		}
		names := strings.Join(fleet.Names(w.Clusters), ", ")
		if !isTerminal(a.stdin) {
			return "", &unconfirmedError{fmt.Sprintf("wave %s (%s) needs an approval: castle has stopped "+
				"before it\n  look at the clusters of the waves before, then run the same command with "+
				"--approve %[1]s", w.Name, names)}
		}
		answer, err := answers(ctx, "wave "+w.Name+": "+names+"\nType the wave's name to begin it: ")
		if err == nil && answer != w.Name {
			err = &unconfirmedError{"wave " + w.Name + " was not approved: castle has stopped before it"}
		}
		return cluster.Self(), err
	}
}

// checkWaves refuses an approval of a wave that the run does not have.
func checkWaves(f *fleet.Fleet, approved []string) (err error) {
	for _, name := range approved {
		if !slices.ContainsFunc(f.Waves, func(w *fleet.Wave) bool { return w.Name == name }) {
			err = errors.Join(err, refuse("--approve %s: the run has no such wave", name))
		}
	}
	return err
}

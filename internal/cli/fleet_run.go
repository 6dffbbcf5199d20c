package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/fleet/record"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/operation/destroy"
	clusters "github.com/ephemeral-castle/castle/internal/operation/list"
	"github.com/ephemeral-castle/castle/internal/operation/waves"
	"github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/ui"
)

// What an unfinished run has done counts for a week. Later nobody remembers it: it is looked at anew.
const longestUnfinished = 7 * 24 * time.Hour

// afterKill is how long the commands of a run that continues a killed one wait for locks: the commands of the
// killed one end by themselves.
const afterKill = 2 * time.Minute

// continued is the help of the commands whose unfinished run is continued.
const continued = `The same command continues a run that stopped, failed or was killed, on any machine that
shares the store: a cluster that has succeeded with the same configuration is not changed
again. --restart begins anew.

`

func newFleetChange(a *app, command, short, long string) *cobra.Command {
	o := &fleetOptions{command: command}
	example := fmt.Sprintf("  castle fleet %s --select env=staging\n  castle fleet %[1]s --all --parallel 8 "+
		"--report fleet.html", command)
	cmd := &cobra.Command{
		Use:   command + " [-- FLAG…]",
		Short: short,
		Long: long + `castle stops at the first
wave in which more than max_failures clusters did not succeed, and names the clusters that
it has not begun. Flags after -- are passed to the command of each cluster.

` + textIf(o.continues(), continued) +
			`The exit code is 0 if all clusters succeeded. Else it is 130 after an interrupt, 3 if a
wave waits for an approval, and otherwise the first of 4, 3, 2, 1, 6, 5 and 7 with which
the command of a cluster ended; 5, too, if a gate closed while a wave soaked.`,
		Example: example,
		Args:    usage(onlyFlags),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.extra = args
			return a.runFleet(cmd, o)
		},
	}
	o.selectionOf(cmd, true)
	if o.continues() {
		cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask, and pass --yes to the command of each cluster")
		a.lockFlag(cmd)
		cmd.Flags().BoolVar(&o.restart, "restart", false, "do not continue an unfinished run, begin anew")
	}
	if o.waits() {
		cmd.Flags().StringSliceVar(&o.approved, "approve", nil,
			"approve the `WAVE` that needs it; repeatable")
	}
	reportFlag(a, cmd)
	return cmd
}

// waits reports whether the waves of the command pause, soak and need approvals.
func (o *fleetOptions) waits() bool { return o.command == "create" || o.command == "rollout" }

// continues reports whether an unfinished run is continued. A backup of last night is none of tonight.
func (o *fleetOptions) continues() bool { return o.command != "backup" }

// runFleet runs the command on the chosen clusters, and reports on all of them.
func (a *app) runFleet(cmd *cobra.Command, o *fleetOptions) error {
	f, options, err := a.fleetOf(cmd, o, true)
	if err == nil {
		err = checkWaves(f, o.approved)
	}
	format := ""
	if err == nil {
		format, err = reportFormat(a)
	}
	if err == nil && o.command == "destroy" {
		err = a.confirmFleet(cmd.Context(), f, o, options)
	}
	if err != nil {
		return err
	}
	children, err := a.children(options)
	if err != nil {
		return err
	}
	// Repositories that share a store have clusters of other names, and runs of their own.
	words := append([]string{o.command, o.choose, slices.Min(fleet.Names(f.Clusters()))}, o.extra...)
	ctx, run, err := record.Begin(cmd.Context(), options, o.restart || !o.continues(),
		func(text string) { a.interrupts.say("castle: " + text) }, words...)
	if err != nil {
		return err
	}
	did, err := a.continueFleet(ctx, o, f, options, run)
	if err != nil {
		return errors.Join(err, run.End(ctx))
	}
	show, reports := a.watchFleet(o)
	began := time.Now()
	report := func(e event.Event) error {
		e.Time, e.Run = time.Now(), run.ID
		show(e)
		return run.Add(context.WithoutCancel(ctx), e)
	}
	err = report(event.Event{Kind: event.RunStarted, Text: "fleet " + o.title(), By: cluster.Self(),
		Command: a.interrupts.command})
	s := waves.Summary{Err: err}
	if err == nil {
		s = waves.Run(ctx, waves.Options{Command: o.command, Run: run.ID, Fleet: f, Parallel: o.parallel,
			Did: did, Waits: o.waits(), Do: a.commandOf(children, o), Closed: closedGatesOf(children),
			Digest:  fleet.Digest(options.Repository, a.version),
			Approve: a.approve(o), Record: run.Add, Report: show})
	}
	ending := a.fleetEnding(ctx, s, time.Since(began))
	text := event.RunOK
	if ending.ExitCode != exitDone {
		texts := xslices.Map(ending.Causes, func(c event.Cause) string { return c.Text })
		text = cmp.Or(strings.Join(texts, "\n"), string(ending.Result))
	}
	err = report(event.Event{Kind: event.RunEnded, Seconds: ending.Seconds, Text: text, Ending: &ending})
	a.printFleet(s, ending)
	err = errors.Join(err, run.End(ctx), reports(format))
	if ending.ExitCode != exitDone {
		err = errors.Join(err, exitError(ending.ExitCode))
	}
	return err
}

// continueFleet returns what the run before has done and nobody has undone since, if that run is unfinished:
// the records of the clusters tell.
func (a *app) continueFleet(ctx context.Context, o *fleetOptions, f *fleet.Fleet, options cluster.Options,
	run *record.Run) ([]event.Event, error) {
	if run.Before == nil || !o.continues() || run.Before.Result == history.Succeeded {
		return nil, nil
	}
	if run.Before.Result == history.Died { // the commands of its clusters may still end
		a.lockTimeout = max(a.lockTimeout, afterKill)
	}
	if o.restart {
		return nil, nil
	}
	listed, err := clusters.Run(ctx, options, o.chosen)
	if err != nil && !is[*naming.Error](err) {
		return nil, err
	}
	status := xslices.ToMap(listed, func(c clusters.Cluster) (string, string) { return c.Name(), c.Status })
	done, there := map[string]bool{}, fleet.Names(f.Clusters())
	did := slices.DeleteFunc(run.Did, func(e event.Event) bool {
		undone := slices.Contains([]string{clusters.Absent, clusters.Failed, clusters.Interrupted},
			status[e.Cluster])
		if o.command == "create" && len(o.extra) == 0 {
			undone = undone || status[e.Cluster] == clusters.Partly
		}
		if o.command == "destroy" { // of some stages leaves others
			undone = cmp.Or(status[e.Cluster], clusters.Absent) != clusters.Absent && len(o.extra) == 0
		}
		undone = e.Cluster != "" && (undone || !slices.Contains(there, e.Cluster)) ||
			time.Since(e.Time) > longestUnfinished
		done[e.Cluster] = !undone && waves.Succeeded(e)
		return undone
	})
	maps.DeleteFunc(done, func(_ string, is bool) bool { return !is })
	a.interrupts.say(fmt.Sprintf("castle: continues the run %s: %s done", run.Before.ID,
		count(len(done), "cluster")))
	return did, nil
}

// commandOf returns how a child runs the command on a cluster.
func (a *app) commandOf(children *waves.Children, o *fleetOptions) func(context.Context, string,
	func(event.Event)) event.Ending {
	flags := slices.Clone(o.extra)
	if a.yes {
		flags = append(flags, "--yes")
	}
	if a.lockTimeout > 0 {
		flags = append(flags, "--lock-timeout", a.lockTimeout.String())
	}
	flags = append(flags, "-o", "json")
	return func(ctx context.Context, name string, report func(event.Event)) event.Ending {
		if o.command == "backup" {
			report = nil // it prints a document
		}
		return children.Run(ctx, report, o.command, name, flags...).Result()
	}
}

// confirmFleet names the machines of all clusters, and asks once.
func (a *app) confirmFleet(ctx context.Context, f *fleet.Fleet, o *fleetOptions,
	options cluster.Options) error {
	for _, w := range f.Waves {
		names := fleet.Names(w.Clusters)
		fmt.Fprintf(a.stderr, "Would destroy in wave %s: %s\n", w.Name, strings.Join(names, ", "))
		if len(o.extra) > 0 {
			fmt.Fprintln(a.stderr, "  with the flags after --; castle destroy NAME tells which machines end")
			continue
		}
		machines := make([][]string, len(names))
		fleet.Each(ctx, cmp.Or(w.Parallel, o.parallel), names, func(i int, name string) {
			machines[i] = machinesOf(ctx, options, name)
		})
		for i, name := range names {
			for _, line := range machines[i] {
				fmt.Fprintf(a.stderr, "  %s: %s\n", name, line)
			}
		}
	}
	want := "destroy " + count(len(f.Clusters()), "cluster")
	err := confirm(a, "the words", want, "go on", "nothing was destroyed")
	a.yes = err == nil // for each of them
	return err
}

// machinesOf describes the machines that the destroy of a cluster ends, or why castle does not know them.
func machinesOf(ctx context.Context, o cluster.Options, name string) (all []string) {
	o.Cluster, o.Recorded = name, true
	c, err := cluster.Open(ctx, o)
	if err != nil {
		return []string{"its machines are not known: " + foreign.OneLine(err.Error())}
	}
	stages, err := destroy.Select(c, destroy.Options{})
	all = xslices.FlatMap(stages, func(s *destroy.Stage) []string { return s.Machines(c.Masker.Hide) })
	if err = errors.Join(err, c.Store.Close()); err != nil {
		all = append(all, "its machines are not known: "+foreign.OneLine(err.Error()))
	}
	return all
}

// watchFleet returns how an event of a run over many clusters is shown, one at a time, and what writes the
// report of all to the file of --report and to the pipeline.
func (a *app) watchFleet(o *fleetOptions) (show func(event.Event), reports func(format string) error) {
	surviveClosedPipe()
	var as, stages cluster.Reporter // as it is; as a run over stages
	if a.output == "json" {
		as = ui.NewJSON(a.stdout)
	} else {
		how := display(a)
		how.Verbose = how.Verbose || !how.View // each change has a line where no view shows it
		stages = a.progressAs(how)
	}
	var events []event.Event
	translated := waves.Stages{Command: o.command, Next: func(e event.Event) {
		if events = append(events, e); stages != nil {
			stages.Report(e)
		}
	}}
	show = func(e event.Event) {
		if as != nil {
			as.Report(e)
		}
		translated.Report(e)
	}
	return show, func(format string) (err error) {
		r := report.New(events, nil)
		if format != "" {
			err = writeReport(&r, a.reportFile, format)
		}
		return errors.Join(err, tellReport(a, findPipeline(a), &r))
	}
}

// fleetEnding sums up a run. Its causes are the clusters that did not succeed.
func (a *app) fleetEnding(ctx context.Context, s waves.Summary, took time.Duration) event.Ending {
	again := strings.TrimSpace(strings.Replace(a.interrupts.command+" ", " --restart ", " ", 1))
	e := ending(fleetError(ctx, s), again)
	e.Seconds, e.Stages, e.Causes = took.Seconds(), map[event.Result]int{}, []event.Cause{}
	if s.Err != nil {
		e.Causes = append(e.Causes, event.Cause{Text: s.Err.Error()})
	}
	if s.Reason != "" {
		e.Causes = append(e.Causes, event.Cause{Text: fmt.Sprintf("wave %s: %s", s.Red, s.Reason)})
	}
	for _, r := range s.Results {
		switch {
		case waves.Succeeded(r):
			e.Stages[event.ResultReady]++
		case r.Ending == nil:
			e.Stages[event.ResultSkipped]++
		case r.Ending.Result == event.OutcomeInterrupted:
			e.Stages[event.ResultInterrupted]++
		default:
			e.Stages[event.ResultFailed]++
			for _, c := range r.Ending.Causes {
				if r.Ending.ExitCode == exitFailed { // one that was refused has no logs
					c.Next = cmp.Or(c.Next, "castle logs "+r.Cluster)
				}
				e.Causes = append(e.Causes, event.Cause{Text: r.Cluster + ": " + c.Text, Next: c.Next})
			}
			if r.Ending.Resume == "" && slices.Contains([]int{exitPreflight, exitGate}, r.Ending.ExitCode) {
				e.Resume = "" // it is refused again
			}
		}
	}
	return e
}

// fleetError is the error of a run: of several clusters that did not succeed, the exit code of the worst.
func fleetError(ctx context.Context, s waves.Summary) error {
	if err := cmp.Or(context.Cause(ctx), s.Err); err != nil {
		return err
	}
	has := func(code int) func(event.Event) bool {
		return func(r event.Event) bool { return r.Ending != nil && r.Ending.ExitCode == code }
	}
	for _, code := range []int{exitPreflight, exitUnconfirmed, exitUsage, exitFailed, exitLeftover, exitGate,
		exitLocked} {
		if slices.ContainsFunc(s.Results, has(code)) {
			return exitError(code)
		}
	}
	if s.Red != "" {
		return exitError(exitGate) // it closed while the wave soaked
	}
	if slices.ContainsFunc(s.Results, func(r event.Event) bool { return !waves.Succeeded(r) }) {
		return exitError(exitFailed) // somebody has interrupted the command of a cluster
	}
	return nil
}

// printFleet prints a row for each cluster, how many ended in which way, and how to go on.
func (a *app) printFleet(s waves.Summary, e event.Ending) {
	if a.output == "json" {
		return
	}
	counts := map[string]int{}
	//nolint:errcheck // a closed pipe changes no result
	printTable(a.stdout, func(w io.Writer) {
		fmt.Fprintln(w, "wave\tcluster\tresult\ttook\treason")
		for _, r := range s.Results {
			result, took, reason := r.Text, "-", ""
			if r.Ending != nil {
				result, took, reason = string(r.Ending.Result), report.Took(r.Seconds), firstLine(r.Text)
				result = cmp.Or(textIf(r.Ending.ExitCode == exitLocked, "locked"), result)
			}
			counts[result]++
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Wave, r.Cluster, result, took, reason)
		}
	})
	var parts []string
	for _, result := range []string{"succeeded", waves.DoneBefore, "failed", "refused", "locked",
		"interrupted", waves.NotBegun} {
		if n := counts[result]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, result))
		}
	}
	fmt.Fprintf(a.stderr, "%s: %s in %s\n", count(len(s.Results), "cluster"), strings.Join(parts, ", "),
		report.Took(e.Seconds))
	if s.Red != "" {
		fmt.Fprintf(a.stderr, "castle: wave %s is red: nothing after it was begun%s\n", s.Red,
			textIf(s.Reason != "", "; "+s.Reason))
	}
	if s.Err != nil {
		fmt.Fprintln(a.stderr, "castle:", s.Err)
	}
	if e.Resume != "" {
		fmt.Fprintln(a.stderr, "Resume:", e.Resume)
	}
}

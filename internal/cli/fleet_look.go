package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/fleet/record"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/naming"
	clusters "github.com/ephemeral-castle/castle/internal/operation/list"
	"github.com/ephemeral-castle/castle/internal/operation/plan"
)

// unassigned stands for the wave of a cluster that has none.
const unassigned = "-"

// fleetRow is what castle shows of one cluster.
type fleetRow struct {
	Wave    string `json:"wave"` // "-": fleet.hcl has none for it
	Cluster string `json:"cluster"`

	Recorded *clusters.Cluster `json:"recorded,omitempty"` // of status
	Gates    string            `json:"gates,omitempty"`    // of status --gates: open, or why not

	Plan     *plan.Total `json:"plan,omitempty"`      // of plan; nil if castle could not plan
	ExitCode *int        `json:"exit_code,omitempty"` // of plan --exit-code
	Problem  string      `json:"problem,omitempty"`
}

// rowsOf returns a row for each cluster, in the order of the waves.
func rowsOf(f *fleet.Fleet) []*fleetRow {
	rows := []*fleetRow{} // none is a list, too
	for _, w := range f.Waves {
		for _, c := range w.Clusters {
			rows = append(rows, &fleetRow{Wave: w.Name, Cluster: c.Name})
		}
	}
	for _, c := range f.Unassigned {
		rows = append(rows, &fleetRow{Wave: unassigned, Cluster: c.Name})
	}
	return rows
}

func newFleetPlan(a *app) *cobra.Command {
	o := &fleetOptions{command: "plan"}
	cmd := &cobra.Command{
		Use:   "plan [-- FLAG…]",
		Short: "Show which clusters a create would change",
		Long: `Run castle plan on each cluster, some at a time, and show a row for each: what a create would
change, or why castle could not plan. It changes nothing. Flags after -- are passed to castle
plan. The exit code is 1 if a cluster could not be planned. With --exit-code, it is else 4
if a create of a cluster would be refused, and else 2 if one would change something.`,
		Example: `  castle fleet plan
  castle fleet plan --select env=staging -- --no-refresh`,
		Args: usage(onlyFlags),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, options, err := a.fleetOf(cmd, o, false)
			if err != nil {
				return err
			}
			children, err := a.children(options)
			if err != nil {
				return err
			}
			rows := rowsOf(f)
			fleet.Each(cmd.Context(), o.parallel, rows, func(_ int, r *fleetRow) {
				x := children.Run(cmd.Context(), nil, "plan", r.Cluster,
					append([]string{"--exit-code", "-o", "json"}, args...)...)
				var p plan.Plan
				if r.ExitCode = &x.Code; json.Unmarshal(x.Output, &p) == nil && p.Total.Counts != nil {
					r.Plan = &p.Total
				}
				if r.Plan == nil || x.Code == exitFailed {
					r.Problem = cmp.Or(x.Reason(), "castle plan prints no plan")
				}
			})
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			document := map[string]any{"clusters": rows}
			err = a.print(document, func(w io.Writer) { printPlans(w, rows) })
			return errors.Join(err, planCode(rows, o.byCode))
		},
	}
	o.selectionOf(cmd, false)
	cmd.Flags().BoolVar(&o.byCode, exitCodeFlag, false,
		"exit with 2 if a create would change a cluster, with 4 if one would be refused")
	return cmd
}

func printPlans(w io.Writer, rows []*fleetRow) {
	fmt.Fprintln(w, "wave\tcluster\tplan")
	for _, r := range rows {
		text := "not planned: " + firstLine(r.Problem)
		switch t := r.Plan; {
		case t == nil:
		case *r.ExitCode == exitPreflight:
			text = "refused"
		case !t.Changes:
			text = "no changes"
		default:
			text = fmt.Sprintf("%s, in %d of %s", actions(t.Counts, "create", "update", "delete"), t.Changing,
				count(t.Stages, "stage")) + textIf(len(t.NotPlanned) > 0,
				fmt.Sprintf("; %d not planned", len(t.NotPlanned)))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.Wave, r.Cluster, text)
	}
}

// planCode is the exit code of the plans: that a cluster could not be planned outweighs the rest.
func planCode(rows []*fleetRow, byCode bool) error {
	codes := map[int]bool{}
	for _, r := range rows {
		codes[*r.ExitCode] = true
		codes[exitFailed] = codes[exitFailed] || r.Plan == nil
	}
	for _, code := range []int{exitFailed, exitPreflight, exitChanges} {
		if codes[code] && (byCode || code == exitFailed) {
			return exitError(code)
		}
	}
	return nil
}

func newFleetStatus(a *app) *cobra.Command {
	o := &fleetOptions{command: "status"}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the last run of each cluster has left, by wave",
		Long: `Show the clusters by their waves, with the status that the last run of each has left, as
castle list does, and how the last run of castle fleet ended. castle reads the records
alone. --gates also looks at the gates of each cluster, some clusters at a time.`,
		Example: `  castle fleet status
  castle fleet status --select site=rome --gates`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, options, err := a.fleetOf(cmd, o, false)
			if err != nil {
				return err
			}
			return a.fleetStatus(cmd, o, f, options)
		},
	}
	o.selectionOf(cmd, false)
	cmd.Flags().BoolVar(&o.gates, "gates", false, "look at the gates of each cluster")
	return cmd
}

func (a *app) fleetStatus(cmd *cobra.Command, o *fleetOptions, f *fleet.Fleet,
	options cluster.Options) error {
	ctx := cmd.Context()
	listed, wrong := clusters.Run(ctx, options, o.chosen)
	if wrong != nil && !is[*naming.Error](wrong) {
		return wrong
	}
	known := map[string]*clusters.Cluster{}
	for i := range listed {
		known[listed[i].Name()] = &listed[i]
	}
	rows := rowsOf(f)
	for _, r := range rows {
		r.Recorded = known[r.Cluster]
	}
	if o.gates {
		children, err := a.children(options)
		if err != nil {
			return err
		}
		closed := closedGatesOf(children)
		fleet.Each(ctx, o.parallel, rows, func(_ int, r *fleetRow) {
			r.Gates = cmp.Or(closed(ctx, r.Cluster), "open")
		})
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	last, unread := record.Latest(ctx, options)
	document := map[string]any{"clusters": rows, "last_run": last}
	err := a.print(document, func(w io.Writer) { printFleetStatus(w, rows, last) })
	return errors.Join(err, wrong, unread)
}

func printFleetStatus(w io.Writer, rows []*fleetRow, last *history.Run) {
	if last != nil {
		fmt.Fprintf(w, "last run: %s: %s, by %s\n\n", last.CommandLine, lastRun(last), last.By)
	}
	fmt.Fprintln(w, "wave\tcluster\tstatus\tstages\tlast run\tgates")
	for _, r := range rows {
		c := cmp.Or(r.Recorded, &clusters.Cluster{Status: clusters.Unknown})
		run := "-"
		if c.LastRun != nil {
			run = lastRun(c.LastRun)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\n", r.Wave, r.Cluster, c.Status, c.Ready, c.Stages, run,
			cmp.Or(r.Gates, firstLine(c.Problem), "-"))
	}
}

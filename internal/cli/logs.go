package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/history"
	runs "github.com/ephemeral-castle/castle/internal/operation/history"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newLogs(a *app) *cobra.Command {
	o := runs.LogOptions{}
	cmd := &cobra.Command{
		Use:   "logs CLUSTER [STAGE|LAYER]",
		Short: "Show the log of a run: castle's journal and Terraform's lines",
		Long: `Show what a run did, in the order of time: the events of castle's journal, with the reasons
why gates were closed, and each line that Terraform printed, marked with a bar. Times are
local. Secrets are masked. Without --run it is the newest run; castle history lists all.

-f goes on until the run has ended. It needs no lock, so that it works beside a run. A run
on another machine is followed through the store, a few seconds behind.`,
		SuggestFor: []string{"log"},
		Example: `  castle logs blue -f
  castle logs blue machines --since 10m
  castle logs blue --run 3f9a1c`,
		Args: a.cluster(cobra.MatchAll(cobra.MaximumNArgs(2), func(*cobra.Command, []string) error {
			if o.Since < 0 {
				return fmt.Errorf("--since %s is negative", o.Since)
			}
			return nil
		})),
		RunE: a.onRecorded(nil, func(ctx context.Context, c *cluster.Cluster, args []string) error {
			o.Stage = strings.Join(args, "")
			logs, err := runs.OpenLogs(ctx, c, o)
			if err != nil {
				return err
			}
			died, err := logs.Each(ctx, logPrinter(a))
			switch {
			case err != nil:
				return err
			case died || logs.Run.Result == history.Died:
				fmt.Fprintf(a.stderr, "castle: run %s died without finishing: nothing more is recorded\n",
					logs.Run.ID)
			case logs.Run.Result == history.Running && !o.Follow:
				fmt.Fprintf(a.stderr, "castle: run %s goes on; -f follows it\n", logs.Run.ID)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.Run, "run", "", "the run with this `ID`, or with this beginning or end of it")
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on until the run has ended")
	cmd.Flags().DurationVar(&o.Since, "since", 0, "only lines of the last `DURATION`, such as 10m")
	return cmd
}

// logPrinter returns what prints a line: as text, in which it makes all visible, or as one JSON object.
func logPrinter(a *app) func(runs.Line) error {
	if a.output == "json" {
		e := json.NewEncoder(a.stdout)
		return func(l runs.Line) error { return e.Encode(l) }
	}
	day := ""
	return func(l runs.Line) error {
		at := l.Time.Local()
		if d := at.Format(time.DateOnly); d != day {
			day = d
			if _, err := fmt.Fprintf(a.values, "%s\n", d); err != nil {
				return err
			}
		}
		l.Layer, l.Stage = foreign.Text(l.Layer), foreign.Text(l.Stage)
		text := "│ " + foreign.Text(l.Terraform)
		if l.Event != nil {
			text = ui.LogText(*l.Event, coloured(a, a.stdout))
		}
		if text == "" {
			return nil
		}
		where := ""
		if l.Stage != "" {
			where = strings.TrimPrefix(l.Layer+"/"+l.Stage, "/")
		}
		moment := at.Format("15:04:05.000")
		for line := range strings.Lines(text) {
			_, err := fmt.Fprintf(a.values, "%s  %-26s %s\n", moment, where, strings.TrimRight(line, "\n"))
			if err != nil {
				return err
			}
		}
		return nil
	}
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/history"
	runs "github.com/ephemeral-castle/castle/internal/operation/history"
	"github.com/ephemeral-castle/castle/internal/report"
)

func newHistory(a *app) *cobra.Command {
	prune, keep, limit := false, 0, 0
	cmd := &cobra.Command{
		Use:   "history CLUSTER",
		Short: "List the runs of a cluster",
		Long: `List the runs of a cluster, the newest first: command, start, duration, result, and by whom.
A run is running, or it succeeded, failed, was refused or interrupted, or died: it was killed.

castle keeps the journals, logs and receipts of the newest 50 runs of a cluster; the block
runs { keep = N } in castle.hcl sets another number. Each run removes what is older, so the
state directory does not grow for ever. castle keeps an older run that it reads again: the
last one that worked on a stage which is not ready, and the one that castle graph measures.

--prune removes old runs now, with the lock; --keep says how many stay.`,
		SuggestFor: []string{"runs"},
		Example: `  castle history blue
  castle history blue --prune --keep 5`,
		Args: a.cluster(cobra.MatchAll(cobra.ExactArgs(1), func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("keep") && !prune:
				return errors.New("--keep requires --prune")
			case cmd.Flags().Changed("keep") && keep < 1:
				return fmt.Errorf("--keep %d: at least 1 run stays", keep)
			case limit < 0:
				return fmt.Errorf("--limit %d is negative", limit)
			}
			return nil
		})),
		RunE: a.onRecorded(nil, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			if prune {
				return pruneRuns(ctx, a, c, keep)
			}
			h, err := runs.List(ctx, c)
			if err != nil {
				return err
			}
			if limit > 0 && len(h.Runs) > limit {
				h.Runs = h.Runs[:limit]
			}
			return a.print(h, func(w io.Writer) { printHistory(a, w, c, h) })
		}),
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "remove old runs now")
	cmd.Flags().IntVar(&keep, "keep", 0,
		"with --prune: keep the newest `COUNT` runs (default as castle.hcl says)")
	cmd.Flags().IntVar(&limit, "limit", 0, "show only the newest `COUNT` runs (default all)")
	return cmd
}

func pruneRuns(ctx context.Context, a *app, c *cluster.Cluster, keep int) error {
	r, err := runs.Prune(ctx, c, keep, noticeLine(a))
	if err != nil {
		return err
	}
	return a.print(r, func(w io.Writer) {
		fmt.Fprintf(w, "Removed %s of %s; %d left.\n", count(len(r.Removed), "run"), c.Name(), r.Left)
		if r.Keep > 0 && r.Left > r.Keep {
			fmt.Fprintf(w, "castle reads %d of them again, and keeps them although they are older.\n",
				r.Left-r.Keep)
		}
	})
}

func printHistory(a *app, w io.Writer, c *cluster.Cluster, h runs.History) {
	if len(h.Runs) == 0 {
		fmt.Fprintf(a.stderr, "castle: %s has had no run yet\n", c.Name())
		return
	}
	fmt.Fprintf(w, "id\tcommand\tstarted\tduration\tresult\tby\t\n")
	for _, r := range h.Runs {
		took := textIf(r.Result != history.Unknown, report.Took(r.Seconds))
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Command, localTime(r.Started),
			cmp.Or(took, "-"), r.Result, cmp.Or(r.By, "-"),
			runewidth.Truncate(foreign.OneLine(r.Reason), 120, "…"))
	}
}

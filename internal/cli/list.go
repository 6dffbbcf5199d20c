package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	human "k8s.io/apimachinery/pkg/util/duration"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/labels"
	"github.com/ephemeral-castle/castle/internal/naming"
	clusters "github.com/ephemeral-castle/castle/internal/operation/list"
)

func newList(a *app) *cobra.Command {
	choose := ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all clusters with what the last run of each has left",
		Long: `List the clusters of the repository, and those that only have a record, with the status that
the last run has left. castle reads the record alone, on this machine or in the store, and
contacts no cluster: castle status looks.

  absent          nothing is recorded
  created         the last apply of every stage was good, and its gates opened then
  partly created  that of some stages
  failed          the last create, destroy or recreate failed
  interrupted     it was interrupted, or killed
  running         a run works on the cluster now
  unknown         castle cannot read the record; the reason follows

STAGES counts the stages whose last apply was good, of those that are configured. NODES and
ENDPOINT are outputs of the platform. AGE is the time since the first stage was recorded. LABELS
are those of cluster.hcl, if a cluster has any; --select chooses by them, as kubectl does.`,
		Example: `  castle list
  castle list --select env=staging,site!=rome
  castle list -o json`,
		SuggestFor: []string{"ls", "get", "clusters"},
		Args:       usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.complete(cluster.Options{Recorded: true})
			if err != nil {
				return err
			}
			chosen, err := fleet.ParseSelector(choose)
			if err != nil {
				return refuse("--%s: %v", selectFlag, err)
			}
			all, wrong := clusters.Run(cmd.Context(), o, chosen)
			if wrong != nil && !is[*naming.Error](wrong) {
				return wrong
			}
			document := map[string]any{"clusters": all}
			return errors.Join(a.print(document, func(w io.Writer) { printList(a, w, all, chosen) }), wrong)
		},
	}
	cmd.Flags().StringVarP(&choose, selectFlag, "l", "", "only clusters whose labels the `SELECTOR` "+
		"chooses, such as env=staging,site!=rome")
	return cmd
}

const selectFlag = "select"

func printList(a *app, w io.Writer, all []clusters.Cluster, chosen fleet.Selector) {
	switch {
	case len(all) == 0 && !chosen.All():
		fmt.Fprintf(a.stderr, "castle: no cluster has such labels: %s\n", chosen)
		return
	case len(all) == 0:
		fmt.Fprintln(a.stderr, "castle: there is no cluster; `castle new CLUSTER` generates one")
		return
	}
	labelled := slices.ContainsFunc(all, func(c clusters.Cluster) bool { return len(c.Labels) > 0 })
	fmt.Fprintf(w, "cluster\tplatform\tstatus\tstages\tnodes\tendpoint\tlast run\tage\t%s\n",
		textIf(labelled, "labels\t"))
	for _, c := range all {
		last := "-"
		if r := c.LastRun; r != nil {
			last = lastRun(r)
		}
		since := "-"
		if !c.Created.IsZero() {
			since = age(c.Created)
		}
		note := cmp.Or(foreign.OneLine(c.Problem), textIf(!c.Configured, "not in the repository"))
		if labelled {
			note = cmp.Or(labels.Text(c.Labels), "-") + "\t" + note
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\t%s\t%s\n", c.Cluster, c.Platform, c.Status, c.Ready,
			c.Stages, cmp.Or(textIf(c.Nodes > 0, strconv.Itoa(c.Nodes)), "-"), cmp.Or(c.Endpoint, "-"), last,
			since, note)
	}
}

// lastRun names a run, its result, and how long ago it ended, or since when it runs.
func lastRun(r *history.Run) string {
	text := fmt.Sprintf("%s %s", r.Command, r.Result)
	switch at := cmp.Or(r.Ended, r.Started); {
	case at.IsZero():
		return text
	case r.Result == history.Running:
		return text + " for " + age(at)
	default:
		return text + ", " + age(at) + " ago"
	}
}

// age is how long ago something was, as kubectl shows it: 12s, 5m, 3h, 8d.
func age(at time.Time) string { return human.HumanDuration(max(0, time.Since(at))) }

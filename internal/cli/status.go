package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newStatus(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status CLUSTER",
		Short: "Say what is ready, and ask every gate once",
		Long: `Say of each stage whether it is absent, ready, stale, failed or interrupted, and
ask every gate once. Exit code 0 however the cluster is; read the states.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(args[0], nil)
			if err != nil {
				return err
			}
			status, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(status)
			}
			return printStatus(a.stdout, status)
		},
	}
	a.valueFlags(cmd)
	return cmd
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func printStatus(w io.Writer, s castle.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "layer\tstage\tstate\tgates\t\n")
	for _, st := range s.Stages {
		open := 0
		var closed []string
		for _, g := range st.Gates {
			if g.Open {
				open++
				continue
			}
			// A gate that failed its stage is closed for the same reason, as a rule.
			if !strings.Contains(st.Reason, "gate "+g.Name+": ") || !strings.Contains(st.Reason, g.Reason) {
				closed = append(closed, g.Name+": "+g.Reason)
			}
		}
		gates := ""
		if len(st.Gates) > 0 {
			gates = fmt.Sprintf("%d of %d open", open, len(st.Gates))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", st.Layer, st.Name, st.State, gates, note(st))
		for _, c := range closed {
			fmt.Fprintf(t, "\t\t\t\t%s\n", strings.ReplaceAll(c, "\n", " "))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, u := range s.Unlisted {
		if _, err := fmt.Fprintln(w, u); err != nil {
			return err
		}
	}
	return nil
}

func note(st castle.StageStatus) string {
	switch {
	case st.Reason != "":
		return strings.ReplaceAll(st.Reason, "\n", " ")
	case len(st.Changed) > 0:
		return "changed: " + strings.Join(st.Changed, ", ")
	}
	return ""
}

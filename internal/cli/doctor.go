package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/doctor"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/operation/status"
)

func newDoctor(a *app) *cobra.Command {
	return a.valueFlags(&cobra.Command{
		Use:   "doctor [CLUSTER]",
		Short: "Check prerequisites",
		Long: `Check everything that a create relies on, and change nothing: Terraform and its
providers, the state directory, the store of the states; Infisical or Vault with the
folder and the secrets that stages read; Proxmox with its certificate, API token and
privileges, nodes, storages, image and VM ids; Git and chart repositories; addresses,
host names, clocks.
Without CLUSTER: this machine only.

A finding is green; yellow, a warning; red, a problem that would stop a create; or
grey, not checked, with the reason. Yellow and red findings name the fix. castle reads
secret values into memory only, and never shows them.

Exit code 0 if nothing is red, 1 if something is, 2 if the configuration cannot be
read (castle check lists its problems).`,
		Example: `  castle doctor blue
  castle doctor`,
		Args: a.optionalCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Without a cluster no repository is needed.
			o := cluster.Options{Cluster: strings.Join(args, ""), Recorded: len(args) == 0}
			o, err := a.complete(o)
			if err != nil {
				return err
			}
			lab, err := findLab()
			if err != nil && !is[*cluster.UsageError](err) {
				return err
			}
			report, err := status.Doctor(cmd.Context(), o, lab)
			if err != nil {
				return err
			}
			err = a.print(report, func(io.Writer) { printReport(a.values, report, coloured(a, a.stdout)) })
			if err == nil && !report.Healthy {
				return exitError(exitFailed)
			}
			return err
		},
	})
}

// printReport writes a line for each finding, its text made visible, and its fix below it.
func printReport(w io.Writer, r *doctor.Report, inColour bool) {
	codes := map[finding.Colour]string{finding.Green: "32", finding.Yellow: "33", finding.Red: "31",
		finding.Grey: "2"}
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Name))
	}
	for _, f := range r.Findings {
		colour := fmt.Sprintf("%-6s", f.Colour)
		if inColour {
			colour = "\x1b[" + codes[f.Colour] + "m" + colour + "\x1b[0m"
		}
		fmt.Fprintf(w, "%s  %-*s  %s\n", colour, width, f.Name, foreign.Text(f.Text))
		if f.Fix != "" {
			fmt.Fprintf(w, "%*s  fix: %s\n", len("yellow  ")+width, "", foreign.Text(f.Fix))
		}
	}
}

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/doctor"
	"github.com/ephemeral-castle/castle/internal/process"
)

func newDoctor(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [CLUSTER]",
		Short: "Ask whether everything that a create relies on is there",
		Long: `Ask everything around a cluster that a create will rely on, and change nothing:
Terraform and its providers, the state directory; Infisical, its folder and the
secrets that stages read there, or the same of a Vault; Proxmox, its certificate,
the API token and its rights, nodes, storages, image and VM ids; the Git
repository; whether addresses are free and names resolve; clocks. Without CLUSTER: this machine alone.

Each finding is green; yellow, a doubt; red, what would stop a create; or grey,
what could not be asked and why. Yellow and red say the way out. Values of
secrets are read into memory at most, and never shown.

Exit code 0 if nothing is red, 1 if something is, 2 if the configuration cannot
be read (castle check says all that is wrong with it).`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("needs at most one cluster, not %d", len(args))
			}
			if len(args) == 0 && len(a.vars)+len(a.varFiles) > 0 {
				return errors.New("--var and --var-file speak of one cluster; name it" + a.known())
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := castle.Options{Recorded: len(args) == 0} // a machine needs no repository
			if len(args) > 0 {
				o.Cluster = args[0]
			}
			o, err := a.complete(o)
			if err != nil {
				return err
			}
			lab, err := findLab(process.Getenv(a.environ, "PATH"))
			if missing := new(castle.UsageError); err != nil && !errors.As(err, &missing) {
				return err
			}
			report, err := castle.Doctor(cmd.Context(), o, lab)
			if err != nil {
				return err
			}
			if a.output == "json" {
				err = a.printJSON(report)
			} else {
				err = printReport(a.stdout, report, isTerminal(a.stdout))
			}
			if err == nil && !report.Healthy {
				return exitError(castle.ExitFailed)
			}
			return err
		},
	}
	a.valueFlags(cmd)
	return cmd
}

// printReport writes a line for each finding, and one below it for the way out.
func printReport(w io.Writer, r *doctor.Report, terminal bool) error {
	wide := 0
	for _, f := range r.Findings {
		wide = max(wide, len(f.Name))
	}
	for _, f := range r.Findings {
		colour := fmt.Sprintf("%-6s", f.Colour)
		if code := map[doctor.Colour]string{doctor.Green: "32", doctor.Yellow: "33", doctor.Red: "31", doctor.Grey: "2"}[f.Colour]; terminal {
			colour = "\x1b[" + code + "m" + colour + "\x1b[0m"
		}
		if _, err := fmt.Fprintf(w, "%s  %-*s  %s\n", colour, wide, f.Name, f.Text); err != nil {
			return err
		}
		if f.Way == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%6s  %*s  way out: %s\n", "", wide, "", f.Way); err != nil {
			return err
		}
	}
	return nil
}

// Command castle-lab rehearses a cluster on this machine. `castle rehearse` runs it with the same
// arguments. One program serves as several processes: the one that a user starts, the first one
// inside the namespaces, the one that holds the datacenter, and the control plane's.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/fault"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/namespace"
	"github.com/ephemeral-castle/castle/lab/internal/rehearsal"
)

const exitUsage = 2

func main() { os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr)) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	code := 0
	var err error
	switch {
	case namespace.IsInit(args):
		return namespace.Init(stderr)
	case len(args) == 2 && args[1] == controlplane.Arg:
		err = controlplane.Main(ctx, stdin, stdout)
	case len(args) == 3 && args[1] == rehearsal.Arg:
		code, err = rehearsal.Main(ctx, args[2], stdin, stdout, stderr)
	default:
		root := command(stdout, stderr, &code)
		root.SetArgs(args[1:])
		root.SetOut(stdout)
		root.SetErr(stderr)
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return code
	}
	return say(stderr, err)
}

// say prints an error and returns its exit code.
func say(stderr io.Writer, err error) int {
	if invalid, ok := errors.AsType[*cluster.ConfigError](err); ok {
		w := hcl.NewDiagnosticTextWriter(stderr, invalid.Files, 0, false)
		if err := w.WriteDiagnostics(invalid.Diagnostics); err == nil {
			return exitUsage
		}
	}
	fmt.Fprintf(stderr, "castle: %v\n", err)
	if _, ok := errors.AsType[*rehearsal.UsageError](err); ok {
		return exitUsage
	}
	return 1
}

func command(stdout, stderr io.Writer, code *int) *cobra.Command {
	o := rehearsal.Options{Environ: os.Environ()}
	speed := ""
	cmd := &cobra.Command{
		Use:           "castle-lab CLUSTER [-- COMMAND…]",
		Short:         "Create and destroy a cluster in a lab on this machine",
		Long:          "Faults for --fault:\n\n" + fault.Usage(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) == 0 || at == 0 || (at < 0 && len(args) > 1) || at > 1 {
				return &rehearsal.UsageError{
					Err: errors.New("requires one cluster; a command follows after --"),
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Speed, err = rehearsal.ParseSpeed(speed); err != nil {
				return &rehearsal.UsageError{Err: err}
			}
			if o.Providers != "stand-in" && o.Providers != "registry" {
				return &rehearsal.UsageError{Err: fmt.Errorf("--providers %q: must be stand-in or registry",
					o.Providers)}
			}
			if err := rehearsal.ParseControllers(o.Controllers); err != nil {
				return &rehearsal.UsageError{Err: err}
			}
			o.Cluster, o.Command = args[0], args[1:]
			switch {
			case o.Edit != "" && len(o.Command) != 0:
				return &rehearsal.UsageError{Err: errors.New("--edit and a command exclude each other: the " +
					"command can edit the configuration itself")}
			case o.Edit == "" && len(o.Flags) != 0:
				return &rehearsal.UsageError{Err: errors.New("--rollout-flag requires --edit")}
			}
			*code, err = rehearsal.Run(cmd.Context(), o, stdout, stderr)
			return err
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &rehearsal.UsageError{Err: err} })
	f := cmd.Flags()
	f.StringVarP(&o.Directory, "directory", "C", ".",
		"run in `DIR`; castle looks for clusters/ there and above")
	f.StringVar(&speed, "speed", "fast",
		"speed of the lab's machines: fast, or `N` times real time (1: as measured)")
	f.StringVar(&o.Providers, "providers", "stand-in",
		"`SOURCE` of the Terraform providers: stand-in, or registry (as Terraform's configuration has it)")
	f.StringVar(&o.Controllers, "controllers", "", "which controllers run: `KIND` real (Flux, MetalLB) or "+
		"standin (default: real if make real has built them)")
	f.StringArrayVar(&o.Sources, "source", nil, "serve `URL=DIR` to Flux: another Git repository, "+
		"a Helm repository with its index.yaml, or an artifact of oci://; repeatable")
	f.StringVar(&o.Charts, "charts", "", "serve the charts in `DIR`, as helm pull writes them, to Flux "+
		"and to stages")
	f.StringArrayVar(&o.Faults, "fault", nil, "inject a fault, `NAME=VALUE`; repeatable")
	f.BoolVar(&o.Keep, "keep", false, "keep the rehearsal's work directory and print its path")
	f.StringVar(&o.With, "with", "", "prepare the lab for another `CLUSTER` of the repository, too")
	f.StringVar(&o.Edit, "edit", "", "apply the patch `FILE` to the configuration, and roll it out")
	f.StringArrayVar(&o.Flags, "rollout-flag", nil, "pass `FLAG` to the rollout; repeatable")
	f.StringVar(&o.Report, "report", "", "write the commands and their durations to `FILE` as JSON, or a "+
		"report on the first run as .txt, .md, .html or .xml (JUnit)")
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ephemeral-castle/castle/internal/doctor"
	"github.com/ephemeral-castle/castle/internal/fault"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

const labName = "castle-lab"

func newRehearse(a *app) *cobra.Command {
	var faults []string
	cmd := &cobra.Command{
		Use:   "rehearse CLUSTER [-- COMMAND…]",
		Short: "Create and destroy a cluster in a lab on this machine",
		Long: `Create and destroy a cluster with its real configuration on this machine: no
hypervisor, no credentials, no network. Without a command castle runs create, status,
create again and destroy; with one it runs that inside the lab, with castle on PATH and
the environment that kubectl, curl and terraform need.

Inside, the repository is a copy that the command may edit ($CASTLE_LAB_REPOSITORY, and
the working directory is in it); the real files stay unchanged. --edit applies a patch,
as git diff and diff -u write it, relative to the repository's root. castle then runs
create, status, the edit, plan, rollout --yes, a create that finds nothing to change,
status and destroy. A patch that does not apply, or after which the configuration is
invalid, is refused before anything starts. With --with, the command has a second cluster
in the same lab: one of the two in Hetzner Cloud, the other one elsewhere.

Faults for --fault:

` + fault.Usage() + `
A DURATION counts from the moment at which the resource would be ready without the
fault; the rehearsal's log (--keep) shows when each fault begins and ends.`,
		Example: `  castle rehearse blue
  castle rehearse blue --fault webhook-late=60s
  castle rehearse blue --edit change.patch --rollout-flag --verbose
  castle rehearse green --with blue -- sh -c 'castle create green && castle create blue'
  castle rehearse blue -- sh -c 'castle create blue && kubectl get nodes'`,
		SuggestFor: []string{"test", "simulate"},
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) == 0 || at == 0 || (at < 0 && len(args) > 1) || at > 1 {
				return errors.New("requires one cluster; a command follows after --")
			}
			return checkFaults(faults)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := []string{"-C", a.directory}
			cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				var values []string
				if all, is := f.Value.(pflag.SliceValue); is {
					values = all.GetSlice()
				} else if f.Changed {
					values = []string{f.Value.String()}
				}
				for _, value := range values {
					argv = append(argv, "--"+f.Name+"="+value)
				}
			})
			argv = append(argv, args[0])
			if len(args) > 1 {
				argv = append(append(argv, "--"), args[1:]...)
			}
			return runLab(cmd.Context(), a, argv)
		},
	}
	// castle-lab has the same flags.
	f := cmd.Flags()
	f.String("speed", "fast", "speed of the lab's machines: fast, or `N` times real time (1: as "+
		"measured)")
	f.String("providers", "stand-in",
		"`SOURCE` of the Terraform providers: stand-in, or registry (as Terraform's configuration has it)")
	f.String("controllers", "", "which controllers run: `KIND` real (Flux, MetalLB) or standin "+
		"(default: real if make real has built them)")
	f.StringArray("source", nil, "serve `URL=DIR` to Flux: another Git repository, "+
		"a Helm repository with its index.yaml, or an artifact of oci://; repeatable")
	f.String("charts", "", "serve the charts in `DIR`, as helm pull writes them, to Flux and to stages")
	f.StringArrayVar(&faults, "fault", nil, "inject a fault, `NAME=VALUE`; repeatable")
	f.Bool("keep", false, "keep the rehearsal's work directory and print its path")
	f.String("with", "", "prepare the lab for another `CLUSTER`, which the command may create, too")
	f.String("edit", "", "apply the patch `FILE` to the configuration, and roll it out")
	f.StringArray("rollout-flag", nil, "pass `FLAG` to the rollout; repeatable")
	f.String("report", "", "write the commands and their durations to `FILE` as JSON, or a "+
		"report on the first run as .txt, .md, .html or .xml (JUnit)")
	return cmd
}

// checkFaults refuses a fault that castle does not know. castle-lab checks the values.
func checkFaults(faults []string) error {
	known := xslices.Map(fault.All(), func(f fault.Fault) string { return f.Name })
	for _, text := range faults {
		if name, _, _ := strings.Cut(text, "="); !slices.Contains(known, name) {
			return fmt.Errorf("--fault %s: unknown fault%s\n  `castle help rehearse` lists the faults", name,
				syntax.DidYouMean(name, known))
		}
	}
	return nil
}

func runLab(ctx context.Context, a *app, argv []string) error {
	lab, err := findLab()
	if err != nil {
		return err
	}
	run := exec.CommandContext(ctx, lab, argv...)
	run.Stdin, run.Stdout, run.Stderr = a.stdin, a.values, a.commands
	run.Env = untraced(a.environ) // no collector can be reached from inside
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	if err := run.Start(); err != nil {
		return fmt.Errorf("%s: %w", labName, err)
	}
	relay := func(times int) {
		switch { // the castle inside handles it; the cancelled context sent the first one
		case times > 3:
			_ = run.Process.Kill() // it fails only if the process has ended
		case times > 1:
			_ = run.Process.Signal(os.Interrupt)
		}
	}
	a.interrupts.update(func(i *interrupts) { i.relay = relay })
	err = run.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &exit):
		return exitError(exit.ExitCode())
	}
	return fmt.Errorf("%s: %w", labName, err)
}

// findLab finds castle-lab beside castle, in lib/castle of the prefix in whose bin castle is, or on PATH.
func findLab() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	for _, name := range []string{filepath.Join(dir, labName),
		filepath.Join(dir, "..", "lib", "castle", labName), labName} {
		if file, err := exec.LookPath(name); err == nil || errors.Is(err, exec.ErrDot) { // PATH=bin:…
			return file, nil
		}
	}
	problem, fix := doctor.NoLab(runtime.GOOS, runtime.GOARCH)
	return "", refuse("%s\n  %s", problem, fix)
}

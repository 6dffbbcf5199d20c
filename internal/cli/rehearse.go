package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/fault"
	"github.com/ephemeral-castle/castle/internal/process"
)

const labName = "castle-lab"

func newRehearse(a *app) *cobra.Command {
	var o struct {
		speed     string
		providers string
		faults    []string
		keep      bool
		report    string
	}
	cmd := &cobra.Command{
		Use:   "rehearse CLUSTER [-- COMMAND…]",
		Short: "Raise and raze a cluster on this machine, in a lab",
		Long: `Raise and raze the unchanged configuration of a cluster on this machine: no
hypervisor, no credentials, no network. Without a command it runs create, status,
create again and destroy; with one it runs that inside the lab, with castle on
PATH and the environment that kubectl, curl and terraform need.

Faults, injected with --fault:

` + fault.Usage() + `
A DURATION counts from the moment when without the fault all would be well; the
rehearsal's log (--keep) says when each fault begins and when it ends.`,
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) == 0 || at == 0 || (at < 0 && len(args) > 1) || at > 1 {
				return errors.New("needs one cluster; a command goes behind --")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := findLab(process.Getenv(a.environ, "PATH"))
			if err != nil {
				return err
			}
			argv := []string{"-C", a.directory, "--speed", o.speed, "--providers", o.providers}
			for _, f := range o.faults {
				argv = append(argv, "--fault", f)
			}
			if o.keep {
				argv = append(argv, "--keep")
			}
			if o.report != "" {
				argv = append(argv, "--report", o.report)
			}
			argv = append(argv, args[0])
			if len(args) > 1 {
				argv = append(append(argv, "--"), args[1:]...)
			}
			run := exec.CommandContext(cmd.Context(), lab, argv...)
			run.Stdin, run.Stdout, run.Stderr = a.stdin, a.stdout, a.stderr
			run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
			if err := run.Start(); err != nil {
				return fmt.Errorf("%s: %w", labName, err)
			}
			a.relaying(func(times int) { pass(run.Process, times) })
			err = run.Wait()
			var exit *exec.ExitError
			switch {
			case err == nil:
				return nil
			case cmd.Context().Err() != nil:
				return context.Cause(cmd.Context())
			case errors.As(err, &exit):
				return exitError(exit.ExitCode())
			}
			return fmt.Errorf("%s: %w", labName, err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.speed, "speed", "fast", "how fast the lab's machines are: fast, or `N` times as fast as real ones (1: as measured)")
	f.StringVar(&o.providers, "providers", "stand-in", "`WHICH` Terraform providers: stand-in, or registry where one can be reached")
	f.StringArrayVar(&o.faults, "fault", nil, "inject a fault, `NAME=VALUE`; may be repeated")
	f.BoolVar(&o.keep, "keep", false, "keep the rehearsal's work directory and say where it is")
	f.StringVar(&o.report, "report", "", "write what was run and how long it took to `FILE`, as JSON")
	return cmd
}

// pass hands an interrupt on to the lab: the castle inside answers it. The first
// one did the context; a lab that is still there after the third is killed.
func pass(lab *os.Process, times int) {
	switch {
	case times > 3:
		_ = lab.Kill() // it has ended meanwhile, if that fails
	case times > 1:
		_ = lab.Signal(os.Interrupt)
	}
}

// findLab looks for castle-lab beside castle, then on path.
func findLab(path string) (string, error) {
	me, err := self()
	if err != nil {
		return "", err
	}
	for _, dir := range append([]string{filepath.Dir(me)}, filepath.SplitList(path)...) {
		file := filepath.Join(dir, labName)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", &castle.UsageError{Message: labName + " is neither beside castle nor on PATH; " +
		"it comes with the source: run `make build` in a clone of castle, which builds both into bin/"}
}

// Package cli is castle's command line: one file for each command, which turns
// flags into options and makes one call. Only Main maps errors to exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ephemeral-castle/castle/internal/castle"
)

// Main runs castle with args (without the program's name) and returns its exit
// code; the codes are listed in package castle. version is what `castle version` says.
func Main(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// Terraform creates its state 0644 otherwise, and children inherit it.
	syscall.Umask(0o077)
	a := &app{version: version, stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ()}
	ctx, stop := a.interruptible(context.Background())
	defer stop()
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	a.explain(err)
	return exitCode(err)
}

// exitError ends castle with a code that is no judgement of castle's own, such as
// the exit code of a Terraform that it ran for the user.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// unconfirmedError says that a confirmation was needed and not given.
type unconfirmedError struct{ message string }

func (e *unconfirmedError) Error() string { return e.message }

func exitCode(err error) int {
	var (
		exit        exitError
		unconfirmed *unconfirmedError
		invalid     *castle.ConfigError
	)
	switch {
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &unconfirmed):
		return castle.ExitUnconfirmed
	case errors.As(err, &invalid):
		return castle.ExitUsage
	}
	return castle.ExitCode(err)
}

// explain writes what went wrong to stderr.
func (a *app) explain(err error) {
	var (
		exit    exitError
		invalid *castle.ConfigError
	)
	switch {
	case err == nil, errors.As(err, &exit):
	case errors.As(err, &invalid):
		width := uint(0)
		colour := isTerminal(a.stderr)
		if colour {
			width = 100
		}
		w := hcl.NewDiagnosticTextWriter(a.stderr, invalid.Files, width, colour)
		if err := w.WriteDiagnostics(invalid.Diagnostics); err != nil {
			fmt.Fprintln(a.stderr, "castle:", invalid)
		}
		fmt.Fprintf(a.stderr, "castle: the configuration has %s; nothing was run\n", count(len(invalid.Diagnostics), "problem"))
	default:
		said := map[string]bool{}
		for _, e := range flatten(err) {
			if text := e.Error(); !said[text] {
				said[text] = true
				fmt.Fprintln(a.stderr, "castle:", text)
			}
		}
	}
}

// flatten returns the errors that were joined in err.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	return []error{err}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// usage makes what cobra finds wrong with flags and arguments a *castle.UsageError,
// and shows how the command is used.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(cmd, err)
		}
		return nil
	}
}

func usageError(cmd *cobra.Command, err error) error {
	return &castle.UsageError{Message: fmt.Sprintf("%v\n  usage: %s", err, cmd.UseLine())}
}

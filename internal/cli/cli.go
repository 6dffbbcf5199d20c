// Package cli is castle's command line: one file for each command, which turns
// flags into options and makes one call. Only Main maps errors to exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/hashicorp/hcl/v2"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/ui"
)

// Main runs castle with args (without the program's name) and returns its exit
// code; the codes are listed in package castle. version is what `castle version` says.
func Main(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// Terraform creates its state 0644 otherwise, and children inherit it.
	syscall.Umask(0o077)
	// Kubernetes' client writes to stderr what it meets and tries again; castle says
	// itself what matters of that.
	klog.SetLogger(logr.Discard())
	a := &app{version: version, stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ()}
	ctx, stop := a.interruptible(context.Background())
	defer stop()
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, context.Canceled) {
		err = errors.Join(cause, err) // whatever went wrong with it, its user has stopped it
	}
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
	case errors.Is(err, context.Canceled):
		return castle.ExitInterrupted
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
		a.explainConfig(invalid)
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

// explainConfig writes what is wrong with a configuration. A problem without a
// place is not in the configuration but in how castle was called.
func (a *app) explainConfig(invalid *castle.ConfigError) {
	var placed hcl.Diagnostics
	for _, d := range invalid.Diagnostics {
		if d.Subject == nil {
			fmt.Fprintln(a.stderr, "castle:", strings.TrimSuffix(d.Summary+". "+d.Detail, ". "))
			continue
		}
		placed = append(placed, d)
	}
	if len(placed) == 0 {
		return
	}
	if err := ui.WriteDiagnostics(a.stderr, placed, invalid.Files, isTerminal(a.stderr)); err != nil {
		fmt.Fprintln(a.stderr, "castle:", placed)
	}
	fmt.Fprintf(a.stderr, "castle: the configuration has %s; nothing was run\n", count(len(placed), "problem"))
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

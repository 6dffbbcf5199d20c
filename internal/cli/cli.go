// Package cli is castle's command line: one file per command, its subcommands included. A command turns its
// flags into options, makes one call and prints the result. It is built by a function, newCreate(a), from the
// app that holds streams, environment and shared flags. Only Main maps errors to exit codes. Results go to
// stdout; progress, questions and errors go to stderr.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
	"github.com/ephemeral-castle/castle/internal/ui"
)

// Main runs castle with args (without the program's name) and returns its exit code.
func Main(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// Terraform creates its state with mode 0644 otherwise; children inherit the umask.
	syscall.Umask(0o077)
	// Kubernetes' client logs every retry to stderr; castle reports failures itself.
	klog.SetLogger(logr.Discard())
	a := &app{version: version, stdin: stdin, stdout: foreign.NewWriter(stdout), values: stdout,
		stderr: foreign.NewWriter(stderr), commands: stderr, environ: os.Environ()}
	a.interrupts.stderr, a.interrupts.command = a.stderr, commandLine(args)
	ctx, stop := interruptible(context.Background(), &a.interrupts)
	defer stop()
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	endTracing(ctx, a)
	told := err
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, context.Canceled) {
		err = errors.Join(cause, err) // a failure after an interrupt still exits with 130
	}
	a.interrupts.closeView()
	if !a.summed {
		told = err
	}
	stateRoot, _ := state.Root(a.stateDir, a.environ) // without one nothing failed there
	explain(a, told, stateRoot)
	if invalid := (*cluster.ConfigError)(nil); errors.As(err, &invalid) {
		annotate(a, invalid.Diagnostics)
		if a.problems {
			ui.NewJSON(a.stdout).ReportProblems(invalid.Diagnostics)
		}
	}
	code := exitCode(err)
	if code == exitUsage && !is[exitError](err) && showsChanges(root, args) {
		code = exitFailed
	}
	if !a.interrupts.profiled() {
		code = cmp.Or(code, exitFailed)
	}
	return code
}

// explain writes every error joined in err once, and a configuration's problems with their lines. It adds
// what to do about the state directory. Errors of a run that was summed up are written already.
func explain(a *app, err error, stateRoot string) {
	w := a.stderr
	var invalid *cluster.ConfigError
	switch {
	case err == nil, is[exitError](err):
	case errors.As(err, &invalid):
		n, err := ui.WriteDiagnostics(a.commands, invalid.Diagnostics, invalid.Files, coloured(a, w))
		if err != nil {
			fmt.Fprintln(w, "castle:", invalid.Diagnostics)
		}
		if n > 0 {
			fmt.Fprintf(w, "castle: the configuration has %s; nothing was run\n", count(n, "problem"))
		}
	default:
		written, fix := map[string]bool{}, ""
		if ended, is := errors.AsType[*run.EndedError](err); is && a.summed {
			for _, e := range run.Joined(ended) {
				written[e.Error()] = true
				fix = cmp.Or(fix, state.Fix(e, stateRoot), cluster.StoreFix(e))
			}
		}
		for _, e := range run.Joined(err) {
			if text := e.Error(); !written[text] {
				written[text] = true
				fmt.Fprintln(w, "castle:", text)
				fix = cmp.Or(fix, state.Fix(e, stateRoot), cluster.StoreFix(e))
			}
		}
		if fix != "" {
			fmt.Fprintln(w, "  "+fix)
		}
	}
}

// The exit codes of every command.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitChanges     = 2 // of `castle plan --exit-code`, which ends with exitFailed instead of exitUsage
	exitUnconfirmed = 3
	exitPreflight   = 4
	exitGate        = 5
	exitLeftover    = 6
	exitLocked      = 7
	exitInterrupted = 130
)

// ExitCode is an exit code with its meaning.
type ExitCode struct {
	Code    int
	Meaning string
}

// ExitCodes returns the exit codes that castle ends with.
func ExitCodes() []ExitCode {
	return []ExitCode{
		{exitDone, "done"},
		{exitFailed, "a stage failed, or another error"},
		{exitUsage, "usage or configuration; castle plan --exit-code: changes (then 1 is any error)"},
		{exitUnconfirmed, "a confirmation was needed"},
		{exitPreflight, "a preflight refused"},
		{exitGate, "a gate timed out, or is closed"},
		{exitLeftover, "something is left over"},
		{exitLocked, "locked by another run, or the lock was lost"},
		{exitInterrupted, "interrupted"},
	}
}

// exitError ends castle without a message: with the exit code of a program that it ran for the user, or
// with that of a plan's result.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// unconfirmedError reports that a required confirmation was not given.
type unconfirmedError struct{ message string }

func (e *unconfirmedError) Error() string { return e.message }

// exitCode maps an error to an exit code. Where several stages failed, a refusal
// outweighs a failed stage, which outweighs a gate.
func exitCode(err error) int {
	var exit exitError
	switch {
	case err == nil:
		return exitDone
	case is[*workingcopy.LostError](err): // the run was stopped for it
		return exitLocked
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &exit):
		return int(exit)
	case is[*unconfirmedError](err):
		return exitUnconfirmed
	case is[*cluster.ConfigError](err), is[*cluster.UsageError](err), is[*workingcopy.OtherError](err),
		is[*naming.Error](err):
		return exitUsage
	case is[*state.HeldError](err):
		return exitLocked
	case is[*run.PreflightError](err), is[*review.NodeError](err), is[*review.HarmError](err),
		is[*review.ExceedsError](err), is[*run.RefusedError](err):
		return exitPreflight
	case is[*review.UnagreedError](err), is[*review.StaleError](err), is[*review.UnreviewedError](err),
		is[*review.LossesError](err):
		return exitUnconfirmed
	case is[*run.LeftoverError](err):
		return exitLeftover
	case is[*status.ClosedError](err), onlyGates(err):
		return exitGate
	}
	return exitFailed
}

// ending maps a run's error to its result and exit code; command resumes the run.
func ending(err error, command string) event.Ending {
	e := event.Ending{Result: event.OutcomeFailed, ExitCode: exitCode(err), Resume: command}
	switch e.ExitCode {
	case exitDone:
		e.Result, e.Resume = event.OutcomeSucceeded, ""
	case exitInterrupted:
		e.Result = event.OutcomeInterrupted
	case exitUsage, exitUnconfirmed, exitPreflight:
		e.Result = event.OutcomeRefused
	}
	closed, isGate := errors.AsType[*waiting.GateError](err)
	if e.ExitCode == exitUsage || e.ExitCode == exitUnconfirmed || is[*review.NodeError](err) ||
		is[*review.HarmError](err) || is[*review.UnagreedError](err) || is[*run.RefusedError](err) ||
		isGate && closed.NeverOpens() {
		e.Resume = "" // the same command is refused again, until something else is done
	}
	return e
}

// is reports whether err is or wraps a T.
func is[T error](err error) bool {
	_, found := errors.AsType[T](err)
	return found
}

// onlyGates reports whether every error joined in err is a gate's.
func onlyGates(err error) bool {
	return !slices.ContainsFunc(run.Joined(err), func(e error) bool { return !is[*waiting.GateError](e) })
}

func count(n int, what string) string {
	return fmt.Sprintf("%d %s%s", n, what, textIf(n != 1, "s"))
}

// textIf returns text, or "" if the condition is false.
func textIf(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// listIf returns text with names, "" if there are none.
func listIf(text string, names []string) string {
	return textIf(len(names) > 0, text+strings.Join(names, ", "))
}

func isTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// startProfile profiles castle itself: CPU and memory for `go tool pprof`, an execution trace for `go tool
// trace`. The returned function ends it and completes the files in the folder.
func startProfile(folder string) (end func() error, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	var files [3]*os.File
	for i, name := range []string{"cpu.pprof", "heap.pprof", "trace.out"} {
		if files[i], err = os.Create(filepath.Join(folder, name)); err != nil {
			return nil, err
		}
	}
	cpu, heap, execution := files[0], files[1], files[2]
	if err := errors.Join(pprof.StartCPUProfile(cpu), trace.Start(execution)); err != nil {
		return nil, err
	}
	return sync.OnceValue(func() error {
		trace.Stop()
		pprof.StopCPUProfile()
		runtime.GC() // or the heap would be that of the last collection
		return errors.Join(pprof.WriteHeapProfile(heap), cpu.Close(), heap.Close(), execution.Close())
	}), nil
}

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
)

// The exit codes of every command.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnconfirmed = 3
	exitPreflight   = 4
	exitGate        = 5
	exitLeftover    = 6
	exitLocked      = 7
	exitInterrupted = 130
)

// exitError ends castle with the exit code of a program that it ran for the user.
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
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &exit):
		return int(exit)
	case is[*unconfirmedError](err):
		return exitUnconfirmed
	case is[*cluster.ConfigError](err), is[*cluster.UsageError](err):
		return exitUsage
	case is[*state.HeldError](err):
		return exitLocked
	case is[*run.PreflightError](err):
		return exitPreflight
	case is[*review.UnagreedError](err), is[*review.StaleError](err), is[*review.UnreviewedError](err):
		return exitUnconfirmed
	case is[*run.LeftoverError](err):
		return exitLeftover
	case is[*status.ClosedError](err), onlyGates(err):
		return exitGate
	}
	return exitFailed
}

// is reports whether err is or wraps a T.
func is[T error](err error) bool {
	_, found := errors.AsType[T](err)
	return found
}

// onlyGates reports whether every error joined in err is a gate's.
func onlyGates(err error) bool {
	for _, e := range flatten(err) {
		if !is[*run.GateError](e) {
			return false
		}
	}
	return true
}

// flatten returns the errors joined in err.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}

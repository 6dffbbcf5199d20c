package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// LeftoverError lists the objects that still exist after a command deleted everything. It includes objects
// that castle could not prove to be gone.
type LeftoverError struct {
	Left    []string
	Objects []event.OwnedObject
	After   string // the command; "destroy" if empty
}

func (e *LeftoverError) Error() string {
	after := cmp.Or(e.After, "destroy")
	if len(e.Objects) == 0 {
		return "left over after " + after + ": " + strings.Join(e.Left, ", ")
	}
	return "left over after " + after + ", or not verified as gone; the same command checks again:" +
		ListObjects(e.Objects)
}

// Failed reports that a stage failed, and adds the stage and Terraform's log to its error. A stage that
// was stopped with its run did not fail: it returns the cause of the stop.
func (r *Run) Failed(ctx context.Context, layer, stage string, err error) error {
	if cause := context.Cause(ctx); cause != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, cause)) {
		r.Emit(event.Event{Kind: event.StageStopped, Layer: layer, Stage: stage})
		return cause
	}
	r.Emit(event.Event{Kind: event.StageFailed, Layer: layer, Stage: stage, Text: err.Error()})
	return &StageError{Layer: layer, Stage: stage, Err: err, Log: r.logOf(stage)}
}

// StageError is the error of a stage that failed.
type StageError struct {
	Layer, Stage string
	Err          error
	Log          string     // the path of Terraform's log; empty if there is none
	Findings     []*Finding // the diagnosis; empty if there is none
	Folder       string     // of the diagnosis
}

func (e *StageError) Error() string {
	text := "stage " + e.Stage + ": " + e.Err.Error()
	if e.Log != "" {
		text += "\n  log: " + e.Log
	}
	for _, f := range e.Findings {
		if f.Report.Cause != "" {
			text += "\n  likely: " + f.Report.Cause
		}
	}
	if e.Folder != "" {
		text += "\n  diagnosis: " + e.Folder
	}
	return text
}

func (e *StageError) Unwrap() error { return e.Err }

// Finding is a closed gate or failed step, and its diagnosis.
type Finding struct {
	Report  event.Diagnosis
	Gate    string                               // its name; empty for a step of Terraform's
	Same    []string                             // further gates that are closed for the same cause
	Follow  int                                  // gates that are closed in consequence
	Kind    gate.Kind                            // of the gate's last answer
	Inspect func(context.Context) gate.Diagnosis // nil once Found is set
	Found   gate.Diagnosis
}

// Empty reports whether the finding adds nothing to Terraform's own error.
func (f *Finding) Empty() bool {
	return f.Gate == "" && f.Found.Cause == "" && len(f.Found.Files) == 0
}

// TimeoutError is the cause of a stage's context that ended because the stage's time was up.
type TimeoutError struct{ After time.Duration }

func (e TimeoutError) Error() string { return "timed out after " + e.After.String() }

// Refusal is the error of a change that castle refuses before Terraform begins it, whose log says nothing.
type Refusal interface {
	error
	IsRefusal()
}

// IsRefusal marks the error.
func (*PreflightError) IsRefusal() {}

// RefusedError reports what castle refuses to do, and why.
type RefusedError struct {
	Refused string // the rollout was not begun; nothing was changed
	Reasons []string
	Fix     string // empty: each reason has its own
}

func (e *RefusedError) Error() string {
	lines := append([]string{e.Refused + ":"}, e.Reasons...)
	if e.Fix != "" {
		lines = append(lines, e.Fix)
	}
	return strings.Join(lines, "\n  ")
}

// IsRefusal marks the error.
func (*RefusedError) IsRefusal() {}

// PreflightError reports that a preflight stopped a stage, because foreign objects are in the way.
type PreflightError struct {
	Preflight        string
	Foreign          []gate.Foreign
	TerraformCommand string // the command that runs Terraform on the stage, up to its "--"
	UntrackCommand   string // the command that untracks a resource of the stage, up to its address
	First            string // the command to run before it, if any
}

func (e *PreflightError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "preflight %s:", e.Preflight)
	for _, f := range e.Foreign {
		fmt.Fprintf(&b, "\n  %s", f.What)
		if f.Why != "" {
			fmt.Fprintf(&b, "\n    %s", f.Why)
		}
		for _, fix := range f.Fixes {
			fmt.Fprintf(&b, "\n    - %s", fix)
		}
		if f.Import != nil {
			b.WriteString("\n    - if it is this cluster's own after all, import it:")
			b.WriteString(e.commands("import " + process.Quote(f.Import.Address) + " " + f.Import.ID))
		}
		if f.Untrack != "" {
			fmt.Fprintf(&b, "\n    - if it is gone for good, forget it:\n      %s %s", e.UntrackCommand,
				process.Quote(f.Untrack))
		}
		if f.ConflictsWith != "" {
			b.WriteString("\n    - if the object in the state is gone for good, remove it from the state:")
			b.WriteString(e.commands("state rm " + process.Quote(f.ConflictsWith)))
		}
	}
	return b.String()
}

// commands returns the lines to paste for a Terraform command on the stage.
func (e *PreflightError) commands(terraform string) string {
	text := "\n      " + e.TerraformCommand + " " + terraform
	if e.First != "" {
		text = "\n      " + e.First + text
	}
	return text
}

// WithLog adds Terraform's log of a stage to an error, if there is one.
func (r *Run) WithLog(stage string, err error) error {
	if path := r.logOf(stage); path != "" {
		return fmt.Errorf("%w\n  log: %s", err, path)
	}
	return err
}

// logOf returns the path of Terraform's log of a stage, or "" if there is none.
func (r *Run) logOf(stage string) string {
	path := r.Files.LogPath(stage)
	if info, err := os.Lstat(path); err != nil || info.Size() == 0 {
		return ""
	}
	return path
}

// During adds the step that failed to an error; nil stays nil.
func During(step string, err error) error {
	if err == nil {
		return nil
	}
	return &StepError{step, err}
}

// StepError is the error of one of a stage's Terraform steps.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }

func (e *StepError) Unwrap() error { return e.Err }

// ListObjects returns a line for each object, with its fix below it.
func ListObjects(objects []event.OwnedObject) string {
	var b strings.Builder
	for _, t := range objects {
		fmt.Fprintf(&b, "\n  %s %s", t.Kind, t.ID)
		if t.Where != "" {
			fmt.Fprintf(&b, " on %s", t.Where)
		}
		switch {
		case t.Reason != "":
			fmt.Fprintf(&b, ": %s", t.Reason)
		case t.Gone:
			b.WriteString(": gone")
		}
		if t.Fix != "" {
			fmt.Fprintf(&b, "\n    - %s", t.Fix)
		}
	}
	return b.String()
}

// ending sums up the run, which ends with err.
func (r *Run) ending(err error) *event.Ending {
	if cause := r.cause(); err != nil && cause != nil && !errors.Is(err, context.Canceled) {
		err = errors.Join(cause, err) // a failure after an interrupt is still an interrupt
	}
	e := event.Ending{Result: event.OutcomeSucceeded}
	switch {
	case r.Cluster.Options.Ending != nil:
		e = r.Cluster.Options.Ending(err)
	case err != nil:
		e = event.Ending{Result: event.OutcomeFailed, ExitCode: 1}
	}
	e.Seconds, e.Stages = time.Since(r.Began).Seconds(), map[event.Result]int{}
	r.emitting.Lock()
	for _, result := range r.results {
		e.Stages[result]++
	}
	r.emitting.Unlock()
	e.Causes = causes(err)
	return &e
}

// EndedError is the error of a run whose ending was reported.
type EndedError struct{ Err error }

func (e *EndedError) Error() string { return e.Err.Error() }

// Unwrap returns the errors that the run's error joins.
func (e *EndedError) Unwrap() []error { return Joined(e.Err) }

// found is a root cause and the object that it is about, if that is known.
type found struct {
	cause event.Cause
	about string
}

// causes returns the root causes of a run's error. Those that close most gates come first. One that several
// stages have is told once. An interrupt is no cause.
func causes(err error) []event.Cause {
	var all []found
	for _, e := range Joined(err) {
		stage, is := e.(*StageError) //nolint:errorlint // an error around it says more
		switch {
		case errors.Is(e, context.Canceled):
		case is:
			all = append(all, stage.causes()...)
		default:
			all = append(all, found{cause: event.Cause{Text: e.Error()}})
		}
	}
	causes, about := []event.Cause{}, map[string]int{}
	for _, f := range all {
		i, known := about[f.about]
		if f.about == "" || !known {
			about[f.about] = len(causes)
			causes = append(causes, f.cause)
			continue
		}
		c := &causes[i]
		c.Stages, c.Gates = append(c.Stages, f.cause.Stages...), append(c.Gates, f.cause.Gates...)
		c.Follow += f.cause.Follow
	}
	closes := func(c event.Cause) int { return len(c.Gates) + c.Follow }
	slices.SortStableFunc(causes, func(a, b event.Cause) int { return closes(b) - closes(a) })
	return causes
}

// causes returns why the stage failed: what its diagnosis found, else its error.
func (e *StageError) causes() []found {
	var all []found
	for _, f := range e.Findings {
		c := event.Cause{Text: f.Report.Cause, Next: f.Report.Next, Stages: []string{e.Stage},
			Follow: f.Follow}
		if f.Gate != "" {
			c.Gates = append([]string{f.Gate}, f.Same...)
		}
		switch {
		case f.Gate == "" && c.Text != "": // Terraform's text names the object
			c.Text = e.Err.Error() + "\n  likely: " + c.Text
		case c.Text == "":
			c.Text = f.Report.Seen
		}
		all = append(all, found{c, f.Found.About})
	}
	if len(all) > 0 {
		return all
	}
	c := event.Cause{Text: e.Err.Error(), Stages: []string{e.Stage}}
	ofTerraform := errors.As(e.Err, new(*StepError)) || errors.As(e.Err, new(*terraform.Error))
	if e.Log != "" && ofTerraform && !errors.As(e.Err, new(Refusal)) { // else the error says all
		c.Next = "less " + process.Quote(e.Log)
	}
	return []found{{cause: c}}
}

// Joined returns the errors that an error joins, at any depth, or else the error itself; none for nil.
func Joined(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	return xslices.FlatMap(joined.Unwrap(), Joined)
}

package castle

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
)

// UsageError is a request that cannot be carried out as it was made.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// PreflightError says that a stage was not started because something stands
// where it would build.
type PreflightError struct {
	Preflight string
	Foreign   []gate.Foreign
	Terraform string // the command that runs Terraform on the stage, up to its "--"
	Forget    string // the command that forgets a resource of the stage, up to its address
	First     string // the command that it needs before it, if any
}

func (e *PreflightError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "preflight %s:", e.Preflight)
	for _, f := range e.Foreign {
		fmt.Fprintf(&b, "\n  %s", f.What)
		if f.Why != "" {
			fmt.Fprintf(&b, "\n    %s", f.Why)
		}
		for _, way := range f.Fixes {
			fmt.Fprintf(&b, "\n    - %s", way)
		}
		if f.Import != nil {
			b.WriteString("\n    - if it is this cluster's own after all, import it:")
			b.WriteString(e.commands("import " + process.Quote(f.Import.Address) + " " + f.Import.ID))
		}
		if f.Untrack != "" {
			fmt.Fprintf(&b, "\n    - if it is gone for good, forget it:\n      %s %s", e.Forget, process.Quote(f.Untrack))
		}
		if f.ConflictsWith != "" {
			b.WriteString("\n    - if what the state knows instead is gone for good, forget that:")
			b.WriteString(e.commands("state rm " + process.Quote(f.ConflictsWith)))
		}
	}
	return b.String()
}

// commands are the lines to paste for what Terraform is to do.
func (e *PreflightError) commands(terraform string) string {
	text := "\n      " + e.Terraform + " " + terraform
	if e.First != "" {
		text = "\n      " + e.First + text
	}
	return text
}

// LeftoverError says what still exists after everything was deleted, or, of
// Things, is not proved to be gone.
type LeftoverError struct {
	Left   []string
	Things []event.OwnedObject
	After  string // the command; "destroy" if empty
}

func (e *LeftoverError) Error() string {
	after := cmp.Or(e.After, "destroy")
	if len(e.Things) == 0 {
		return "left over after " + after + ": " + strings.Join(e.Left, ", ")
	}
	return fmt.Sprintf("left over after %s, or not proved gone; the same command asks again:", after) + listed(e.Things)
}

// fullDisk adds the way out to an error of the state directory's disk, which has
// no room left for castle, or for Terraform, which names the file. A disk in the
// datacenter may be full, too.
func fullDisk(err error, dir string) error {
	if err == nil {
		return nil
	}
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if text := err.Error(); !full && (!strings.Contains(text, syscall.ENOSPC.Error()) || !strings.Contains(text, dir)) {
		return err
	}
	return fmt.Errorf("%w\n  the disk of the state directory %s is full: make room there and give the same command again; "+
		"it finds what this run has made", err, dir)
}

// GateError is a gate that did not open, with the stage that it belongs to.
type GateError struct {
	Gate string
	Err  error

	found *finding // what its surroundings said when it was given up; may be nil
}

func (e *GateError) Error() string { return e.Err.Error() }
func (e *GateError) Unwrap() error { return e.Err }

// ClosedError says that not everything is open that was asked.
type ClosedError struct {
	Closed, Asked int      // gates
	Missing       []string // stages that could not be asked
}

func (e *ClosedError) Error() string {
	var parts []string
	switch {
	case e.Closed == 1:
		parts = append(parts, fmt.Sprintf("1 of %d gates is closed", e.Asked))
	case e.Closed > 1:
		parts = append(parts, fmt.Sprintf("%d of %d gates are closed", e.Closed, e.Asked))
	}
	if len(e.Missing) > 0 {
		parts = append(parts, "could not be asked: "+strings.Join(e.Missing, ", "))
	}
	return strings.Join(parts, "; ")
}

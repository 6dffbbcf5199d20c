package event

import (
	"fmt"
	"slices"
)

// Outcome is how a run ended. The values are part of journals and of reports in JSON.
type Outcome string

// The outcomes of a run.
const (
	OutcomeSucceeded   Outcome = "succeeded"
	OutcomeFailed      Outcome = "failed"
	OutcomeRefused     Outcome = "refused" // castle refused to start or to go on, such as after a preflight
	OutcomeInterrupted Outcome = "interrupted"
)

// Ending sums up a run that has ended.
type Ending struct {
	Result   Outcome        `json:"result"`
	ExitCode int            `json:"exit_code"`
	Stages   map[Result]int `json:"stages"` // how many stages ended so
	Seconds  float64        `json:"seconds"`
	Causes   []Cause        `json:"causes"`           // root causes, the most important first
	Resume   string         `json:"resume,omitempty"` // the exact command
}

// Cause is a root cause of a failed run.
type Cause struct {
	Text   string   `json:"text"`
	Next   string   `json:"next,omitempty"`   // how to look further, or the fix
	Stages []string `json:"stages,omitempty"` // that failed for it
	Gates  []string `json:"gates,omitempty"`  // that are closed for it, the first one found first
	Follow int      `json:"follow,omitempty"` // how many further gates are closed in consequence
}

// Following says how many further gates are closed in consequence of a cause.
func Following(n int) string {
	if n == 1 {
		return "1 further gate follows from it"
	}
	return fmt.Sprintf("%d further gates follow from it", n)
}

// Masked returns the ending with its texts passed through hide. The names of stages and gates stay.
func (e Ending) Masked(hide func(string) string) Ending {
	e.Causes, e.Resume = slices.Clone(e.Causes), hide(e.Resume)
	for i, c := range e.Causes {
		e.Causes[i].Text, e.Causes[i].Next = hide(c.Text), hide(c.Next)
	}
	return e
}

package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// reminder is the interval at which an interrupted run repeats the steps that it waits for.
const reminder = 10 * time.Second

// activate lets signal handlers find the run.
func (r *Run) activate() {
	r.ended = make(chan struct{})
	r.Cluster.SetActive(r)
}

func (r *Run) deactivate() {
	r.Cluster.SetActive(nil)
	close(r.ended)
}

// Interrupt reports the cost of ending the run, which depends on the number of interrupts. It repeats the
// report until the run has ended.
func (r *Run) Interrupt(times int) {
	first := r.interrupts.Swap(int64(times)) == 0
	r.reportInterrupt(event.Interrupted)
	if first {
		go r.remind()
	}
}

// Kill ends every Terraform of the run at once, with its providers.
func (r *Run) Kill(ctx context.Context) error { return r.workspaces.kill(ctx) }

// remind repeats the pending steps of an interrupted run until the run has ended.
func (r *Run) remind() {
	again := time.NewTicker(reminder)
	defer again.Stop()
	for {
		select {
		case <-r.ended:
			return
		case <-again.C:
			r.reportInterrupt(event.Waiting)
		}
	}
}

// reportInterrupt emits Terraform's current steps and the cost of ending the run now.
func (r *Run) reportInterrupt(kind event.Kind) {
	works := r.running()
	if kind == event.Waiting && len(works) == 0 {
		return // it is about to end
	}
	outputs := event.Interruption{Times: int(r.interrupts.Load()), Operations: works}
	r.Emit(event.Event{Kind: kind, Text: interruptText(kind, outputs), Interruption: &outputs})
}

// interruptText returns the message for a user who has interrupted a run.
func interruptText(kind event.Kind, i event.Interruption) string {
	// A command that the user runs by hand may change something, too.
	changing := slices.DeleteFunc(slices.Clone(i.Operations), func(w event.Operation) bool {
		return slices.Contains([]string{"version", "init", "plan", "show"}, w.Command)
	})
	const waiting = "still waiting for Terraform"
	const unsure = "these may be missing in its state or half-made (the same command looks for them)"
	switch {
	case kind == event.Waiting:
		return waiting + listWork(i.Operations)
	case i.Times == 1 && len(i.Operations) == 0:
		return "interrupted; no Terraform operation running, and castle starts nothing new"
	case i.Times == 1:
		return "interrupted; Terraform finishes its operations and saves its state" + listWork(i.Operations)
	case i.Times == 2 && len(changing) == 0:
		return waiting + "; a third interrupt kills it, and nothing is lost" + listWork(i.Operations)
	case i.Times == 2:
		return waiting + "; a third interrupt kills it, and " + unsure + listWork(changing)
	case len(changing) == 0:
		return "killed; nothing was lost"
	default:
		return "killed; " + unsure + listWork(changing)
	}
}

// listWork returns a line for each operation that Terraform is working on.
func listWork(works []event.Operation) string {
	if len(works) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(":")
	for _, w := range works {
		what := "terraform " + w.Command
		if w.Address != "" {
			what = w.Action + " " + w.Address
		}
		fmt.Fprintf(&b, "\n  %s/%s: %s since %s (%s)", w.Layer, w.Stage, what,
			w.Since.Format(time.TimeOnly), time.Since(w.Since).Round(time.Second))
	}
	return b.String()
}

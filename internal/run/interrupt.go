package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// reminder is the interval at which an interrupted run repeats the steps that it waits for.
const reminder = 10 * time.Second

// interrupts counts how often a run was interrupted.
type interrupts struct {
	mu    sync.Mutex
	times int
	ended chan struct{} // closed when the run has ended
}

// activate lets signal handlers find the run.
func (r *Run) activate() {
	r.interrupts.ended = make(chan struct{})
	r.Cluster.SetActive(r)
}

func (r *Run) deactivate() {
	r.Cluster.SetActive(nil)
	close(r.interrupts.ended)
}

// Interrupt reports the cost of ending the run, which depends on the number of interrupts. It repeats the
// report until the run has ended.
func (r *Run) Interrupt(times int) {
	r.interrupts.mu.Lock()
	first := r.interrupts.times == 0
	r.interrupts.times = times
	r.interrupts.mu.Unlock()
	r.reportInterrupt(event.Interrupted, times)
	if first {
		go remind(r, r.interrupts.ended)
	}
}

// Kill ends every Terraform of the run at once, with its providers.
func (r *Run) Kill(ctx context.Context) error { return r.workspaces.kill(ctx) }

// remind repeats the pending steps of an interrupted run until the run has ended.
func remind(r *Run, ended <-chan struct{}) {
	again := time.NewTicker(reminder)
	defer again.Stop()
	for {
		select {
		case <-ended:
			return
		case <-again.C:
			r.interrupts.mu.Lock()
			times := r.interrupts.times
			r.interrupts.mu.Unlock()
			r.reportInterrupt(event.Waiting, times)
		}
	}
}

// reportInterrupt emits Terraform's current steps and the cost of ending the run now.
func (r *Run) reportInterrupt(kind event.Kind, times int) {
	works := r.running()
	if kind == event.Waiting && len(works) == 0 {
		return // it is about to end
	}
	outputs := event.Interruption{Times: times, Operations: works}
	r.Emit(event.Event{Kind: kind, Text: interruptText(kind, outputs), Interruption: &outputs})
}

// interruptText returns the message for a user who has interrupted a run.
func interruptText(kind event.Kind, i event.Interruption) string {
	changing := slices.DeleteFunc(slices.Clone(i.Operations),
		func(w event.Operation) bool { return !mayChange(w.Command) })
	switch {
	case kind == event.Waiting:
		return "still waiting for Terraform" + listWork(i.Operations)
	case i.Times == 1 && len(i.Operations) == 0:
		return "interrupted; no Terraform operation running, and castle starts nothing new"
	case i.Times == 1:
		return "interrupted; Terraform finishes its operations and saves its state" + listWork(i.Operations)
	case i.Times == 2 && len(changing) == 0:
		return "still waiting for Terraform; a third interrupt kills it, and nothing is lost" + listWork(
			i.Operations)
	case i.Times == 2:
		return "still waiting for Terraform; a third interrupt kills it, and these may be missing " +
			"in its state or half-made (the same command looks for them)" + listWork(changing)
	case len(changing) == 0:
		return "killed; nothing was lost"
	default:
		return "killed; these may be missing in its state or half-made (the same command looks for them)" +
			listWork(changing)
	}
}

// mayChange reports whether a Terraform command may change something. A command that the user runs by
// hand may.
func mayChange(command string) bool {
	return !slices.Contains([]string{"init", "plan", "show"}, command)
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

// running returns the operations that Terraform is working on, the oldest first.
func (r *workspaces) running() []event.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []event.Operation{}
	for _, w := range r.all {
		for _, o := range w.Root.Operations() {
			all = append(all, event.Operation{
				Layer: w.layer, Stage: w.stage,
				Command: o.Command, Address: o.Address, Action: o.Action, Since: o.Since,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b event.Operation) int { return a.Since.Compare(b.Since) })
	return all
}

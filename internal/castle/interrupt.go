package castle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// reminder is how often an interrupted run says what it still waits for.
const reminder = 10 * time.Second

// current is the run that holds the cluster's lock for a Castle, if there is one.
type current struct {
	mu    sync.Mutex
	run   *run
	times int           // how often it was interrupted
	ended chan struct{} // closed when it has ended
}

func (c *current) begin(r *run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run, c.times, c.ended = r, 0, make(chan struct{})
}

func (c *current) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		c.run = nil
		close(c.ended)
	}
}

// Running reports whether a run holds the cluster's lock.
func (c *Castle) Running() bool {
	c.current.mu.Lock()
	defer c.current.mu.Unlock()
	return c.current.run != nil
}

// Interrupt has the run say what ending it would cost: how often its user has
// interrupted it decides. It ends nothing; that is for the run's context, or for Kill.
func (c *Castle) Interrupt(times int) {
	c.current.mu.Lock()
	r, first, ended := c.current.run, c.current.times == 0, c.current.ended
	c.current.times = times
	c.current.mu.Unlock()
	if r == nil {
		return
	}
	r.interrupted(event.Interrupted, times)
	if first {
		go r.remind(ended)
	}
}

// remind says again and again what an interrupted run waits for, until it has ended.
func (r *run) remind(ended <-chan struct{}) {
	again := time.NewTicker(reminder)
	defer again.Stop()
	for {
		select {
		case <-ended:
			return
		case <-again.C:
			r.current.mu.Lock()
			times := r.current.times
			r.current.mu.Unlock()
			r.interrupted(event.Waiting, times)
		}
	}
}

func (r *run) interrupted(kind event.Kind, times int) {
	works := r.atWork()
	if kind == event.Waiting && len(works) == 0 {
		return // it is about to end
	}
	said := event.Interruption{Times: times, Works: works}
	r.emit(event.Event{Kind: kind, Text: answer(kind, said), Interruption: &said})
}

// answer is what a user is told who has interrupted a run.
func answer(kind event.Kind, i event.Interruption) string {
	changing := slices.DeleteFunc(slices.Clone(i.Works), func(w event.Work) bool { return !changes(w.Command) })
	switch {
	case kind == event.Waiting:
		return "still waiting for Terraform" + list(i.Works)
	case i.Times == 1 && len(i.Works) == 0:
		return "interrupted; Terraform is at nothing now, and nothing new is started"
	case i.Times == 1:
		return "interrupted; Terraform finishes what it has begun and saves its state" + list(i.Works)
	case i.Times == 2 && len(changing) == 0:
		return "still waiting for Terraform; a third interrupt kills it, and nothing is lost" + list(i.Works)
	case i.Times == 2:
		return "still waiting for Terraform; a third interrupt kills it, and what it is at now would be missing in its state " +
			"or be half-made (the same command looks for it)" + list(changing)
	case len(changing) == 0:
		return "killed; nothing was lost"
	default:
		return "killed; what Terraform was at may be missing in its state or be half-made (the same command looks for it)" + list(changing)
	}
}

// changes reports whether a Terraform command may change something. What the user
// has run by hand may.
func changes(command string) bool { return !slices.Contains([]string{"init", "plan", "show"}, command) }

// list is one line for each thing that Terraform is at.
func list(works []event.Work) string {
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

// works are the things that Terraform is at, the oldest first.
func (r *roots) works() []event.Work {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []event.Work{}
	for _, w := range r.all {
		doing := w.Doing()
		if doing == nil {
			continue
		}
		one := event.Work{Layer: w.layer, Stage: w.stage, Command: doing.Command, Since: doing.Since}
		if len(doing.Begun) == 0 {
			all = append(all, one)
		}
		for _, b := range doing.Begun {
			one.Address, one.Action, one.Since = b.Address, b.Action, b.Since
			all = append(all, one)
		}
	}
	slices.SortStableFunc(all, func(a, b event.Work) int { return a.Since.Compare(b.Since) })
	return all
}

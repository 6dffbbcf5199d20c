// Package waves runs one command on many clusters, wave by wave. It begins a wave when the one before has
// ended well, stops at the first that has not, and names the clusters that it has not begun.
//
// The command of a cluster is a castle of its own: a process with its own lock, folders, memory and output.
// Its events come back as JSON; a secret reaches it in the environment alone. A cluster that is locked,
// protected or away is a result. A record says which clusters and waves need not be done again.
package waves

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/fleet/record"
)

// Options are a command and the clusters on which it runs.
type Options struct {
	Title    string // create env=staging
	Command  string // create
	Fleet    *fleet.Fleet
	Parallel int // clusters at a time, where the wave does not say it
	Record   *record.Run
	// Waits has the waves wait: for an approval, for their pause, and while they soak.
	Waits bool
	// Do runs the command on a cluster. report gets the events of its run.
	Do func(ctx context.Context, cluster string, report func(event.Event)) Ended
	// Closed looks at the gates of a cluster once, and returns why not all are open, or "".
	Closed func(ctx context.Context, cluster string) string
	// Digest identifies the configuration of a cluster.
	Digest func(cluster string) (string, error)
	// Approve returns who approves a wave; the error is that of the run if nobody does.
	Approve func(ctx context.Context, w *fleet.Wave) (by string, err error)
	Report  func(event.Event)
}

// Ended is how the command has ended for a cluster.
type Ended struct {
	Outcome  event.Outcome `json:"result"`
	ExitCode int           `json:"exit_code"`
	Reason   string        `json:"reason,omitempty"`
}

// Result is what has become of a cluster.
type Result struct {
	Wave    string  `json:"wave"`
	Cluster string  `json:"cluster"`
	Ended   *Ended  `json:"ended,omitempty"`   // nil: the run has not begun it
	Skipped string  `json:"skipped,omitempty"` // why not
	Seconds float64 `json:"seconds"`
}

// Succeeded reports whether the command has succeeded, in this run or in the one that it continues.
func (r Result) Succeeded() bool {
	return r.Ended != nil && r.Ended.Outcome == event.OutcomeSucceeded || r.Skipped == doneBefore
}

// Why a cluster was not begun.
const (
	doneBefore = "done before"
	notBegun   = "not begun"
)

// Summary is how a run has ended.
type Summary struct {
	Results []Result // in the order of the waves
	Red     string   // the wave that has stopped the run
	Reason  string   // why, unless its clusters tell
	Err     error    // that is no result of a cluster
}

// Outcome is how the run has ended as a whole.
func (s *Summary) Outcome(ctx context.Context) event.Outcome {
	switch {
	case ctx.Err() != nil:
		return event.OutcomeInterrupted
	case s.Err != nil:
		return event.OutcomeRefused
	case s.Red != "" || slices.ContainsFunc(s.Results, func(r Result) bool { return !r.Succeeded() }):
		return event.OutcomeFailed
	}
	return event.OutcomeSucceeded
}

// execution is a run in progress.
type execution struct {
	o       Options
	mu      sync.Mutex
	results map[string]Result // by cluster
	summary Summary
	ended   time.Time // when the last wave passed; zero before the first one
}

// Run runs the command. A cancelled ctx interrupts the commands that run, and begins none any more.
func Run(ctx context.Context, o Options) Summary {
	x := &execution{o: o, results: map[string]Result{}}
	for _, w := range o.Fleet.Waves {
		if !x.wave(ctx, w) {
			break
		}
	}
	for _, w := range o.Fleet.Waves {
		for _, c := range w.Clusters {
			r, known := x.results[c.Name]
			if !known {
				r = x.skip(w, c.Name, notBegun)
			}
			x.summary.Results = append(x.summary.Results, r)
		}
	}
	return x.summary
}

// stop ends the run for an error that is no result of a cluster.
func (x *execution) stop(err error) bool {
	if err != nil && !errors.Is(err, context.Canceled) {
		x.mu.Lock()
		x.summary.Err = errors.Join(x.summary.Err, err)
		x.mu.Unlock()
	}
	return err == nil
}

// red ends the run at a wave.
func (x *execution) red(ctx context.Context, w *fleet.Wave, reason string) bool {
	if ctx.Err() == nil {
		x.summary.Red, x.summary.Reason = w.Name, reason
		x.report(event.Event{Kind: event.WaveEnded, Wave: w.Name,
			Text: strings.TrimSuffix("red: "+reason, ": ")})
	}
	return false
}

// wave runs the command on the clusters of a wave, and reports whether the next one may begin.
func (x *execution) wave(ctx context.Context, w *fleet.Wave) bool {
	digests, whole := map[string]string{}, sha256.New()
	done := map[string]bool{} // the record changes while clusters end
	todo := slices.Clone(w.Clusters)
	for _, c := range w.Clusters {
		digest, err := x.o.Digest(c.Name)
		if err != nil {
			return x.stop(err)
		}
		digests[c.Name] = digest
		fmt.Fprintln(whole, c.Name, digest)
		before, is := x.o.Record.Done[c.Name]
		done[c.Name] = is && before.Result == event.OutcomeSucceeded && before.Digest == digest
	}
	passed, was := x.o.Record.Passed[w.Name]
	if was && !slices.ContainsFunc(todo, func(c fleet.Cluster) bool { return !done[c.Name] }) {
		for _, c := range todo {
			x.skip(w, c.Name, doneBefore)
		}
		x.ended = passed
		return true
	}
	if !x.stop(x.await(ctx, w, fmt.Sprintf("%x", whole.Sum(nil)))) {
		return false
	}
	x.report(event.Event{Kind: event.WaveStarted, Wave: w.Name,
		Text: strings.Join(fleet.Names(w.Clusters), ", ")})
	if n := w.Canary; n > 0 && n < len(todo) {
		if !x.batch(ctx, w, todo[:n], 0, done, digests) {
			return false
		}
		todo = todo[n:]
	}
	if !x.batch(ctx, w, todo, w.MaxFailures, done, digests) ||
		!x.stop(x.o.Record.Append(ctx, record.Entry{Passed: w.Name})) {
		return false
	}
	x.ended = time.Now()
	x.report(event.Event{Kind: event.WaveEnded, Wave: w.Name, Text: event.RunOK})
	return true
}

// await waits for the pause before a wave and for its approval. digest identifies what is approved.
func (x *execution) await(ctx context.Context, w *fleet.Wave, digest string) error {
	if !x.o.Waits {
		return ctx.Err()
	}
	if left := time.Until(x.ended.Add(w.Pause)); w.Pause > 0 && !x.ended.IsZero() && left > 0 {
		x.note("wave %s begins in %v", w.Name, left.Round(time.Second))
		if !sleep(ctx, left) {
			return ctx.Err()
		}
	}
	if !w.Approval || x.o.Record.Approved[w.Name].Digest == digest || ctx.Err() != nil {
		return ctx.Err()
	}
	by, err := x.o.Approve(ctx, w)
	if err != nil {
		return err
	}
	x.note("wave %s: approved by %s", w.Name, by)
	return x.o.Record.Append(ctx, record.Entry{
		Approved: &record.Approval{Wave: w.Name, By: by, Digest: digest}})
}

// batch runs the command on clusters of a wave, lets them soak, and reports whether the run may go on. It
// begins no cluster any more once more than most have failed.
func (x *execution) batch(ctx context.Context, w *fleet.Wave, all []fleet.Cluster, most int,
	done map[string]bool, digests map[string]string) bool {
	begin, stop := context.WithCancel(ctx)
	defer stop()
	parallel, failed := w.Parallel, 0
	if parallel == 0 {
		parallel = x.o.Parallel
	}
	fleet.Each(begin, parallel, all, func(_ int, c fleet.Cluster) {
		if done[c.Name] {
			x.skip(w, c.Name, doneBefore)
			return
		}
		ended := x.cluster(ctx, w, c.Name)
		if ended.Outcome == event.OutcomeInterrupted && ctx.Err() != nil {
			return
		}
		err := x.o.Record.Append(context.WithoutCancel(ctx), record.Entry{Done: &record.Done{Wave: w.Name,
			Cluster: c.Name, Result: ended.Outcome, Digest: digests[c.Name]}})
		x.mu.Lock()
		if ended.Outcome != event.OutcomeSucceeded {
			failed++
		}
		tooMany := failed > most
		x.mu.Unlock()
		if !x.stop(err) || tooMany {
			stop()
		}
	})
	switch {
	case ctx.Err() != nil || x.summary.Err != nil:
		return false
	case failed > most:
		return x.red(ctx, w, "")
	}
	return x.soak(ctx, w, all)
}

// cluster runs the command on one cluster.
func (x *execution) cluster(ctx context.Context, w *fleet.Wave, name string) Ended {
	began := time.Now()
	x.report(event.Event{Kind: event.ClusterStarted, Wave: w.Name, Cluster: name})
	ended := x.o.Do(ctx, name, func(e event.Event) {
		e.Wave, e.Cluster = w.Name, name
		x.send(e)
	})
	r := Result{Wave: w.Name, Cluster: name, Ended: &ended, Seconds: time.Since(began).Seconds()}
	x.mu.Lock()
	x.results[name] = r
	x.mu.Unlock()
	x.report(event.Event{Kind: event.ClusterEnded, Wave: w.Name, Cluster: name, Seconds: r.Seconds,
		Text: ended.Reason, Ending: &event.Ending{Result: ended.Outcome, ExitCode: ended.ExitCode,
			Seconds: r.Seconds, Stages: map[event.Result]int{}, Causes: []event.Cause{}}})
	return ended
}

// The pause between two looks at the gates of a cluster that soaks.
const (
	shortestLook = time.Second
	longestLook  = 30 * time.Second
)

// soak watches that the gates of clusters that have succeeded stay open.
func (x *execution) soak(ctx context.Context, w *fleet.Wave, all []fleet.Cluster) bool {
	if !x.o.Waits || w.Soak == 0 {
		return true
	}
	x.note("wave %s soaks for %v", w.Name, w.Soak)
	end := time.Now().Add(w.Soak)
	for {
		var mu sync.Mutex
		var closed []string
		fleet.Each(ctx, x.o.Parallel, all, func(_ int, c fleet.Cluster) {
			x.mu.Lock()
			good := x.results[c.Name].Succeeded()
			x.mu.Unlock()
			if !good {
				return
			}
			if why := x.o.Closed(ctx, c.Name); why != "" {
				mu.Lock()
				defer mu.Unlock()
				closed = append(closed, c.Name+": "+why)
			}
		})
		slices.Sort(closed)
		left := time.Until(end)
		switch {
		case ctx.Err() != nil:
			return false
		case len(closed) > 0:
			return x.red(ctx, w, "while it soaked, "+strings.Join(closed, "; "))
		case left <= 0:
			return true
		}
		// A last look is at the very end.
		if !sleep(ctx, min(left, max(shortestLook, min(w.Soak/10, longestLook)))) {
			return false
		}
	}
}

// skip notes a cluster that the run does not begin.
func (x *execution) skip(w *fleet.Wave, name, why string) Result {
	r := Result{Wave: w.Name, Cluster: name, Skipped: why}
	x.mu.Lock()
	x.results[name] = r
	x.mu.Unlock()
	x.report(event.Event{Kind: event.ClusterSkipped, Wave: w.Name, Cluster: name, Text: why})
	return r
}

func (x *execution) note(format string, args ...any) {
	x.report(event.Event{Kind: event.Notice, Text: fmt.Sprintf(format, args...)})
}

// report sends an event of the run over all clusters.
func (x *execution) report(e event.Event) {
	e.Time, e.Run = time.Now(), x.o.Record.ID
	x.send(e)
}

// send passes on one event at a time.
func (x *execution) send(e event.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.o.Report(e)
}

// sleep waits, and reports whether it was not interrupted.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Package waves runs one command on many clusters, wave by wave. It begins a wave when the one before has
// ended well, stops at the first that has not, and names the clusters that it has not begun. The command of a
// cluster is a castle of its own: a process with its own lock, folders, memory and output. Its events come
// back as JSON; a secret reaches it in the environment alone. A cluster that is locked, protected or away is
// a result. A record says which clusters and waves need not be done again.
package waves

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// Options are a command and the clusters on which it runs.
type Options struct {
	Command  string // create
	Run      string // its id
	Fleet    *fleet.Fleet
	Parallel int // clusters at a time, where the wave does not say it
	// Did are the events of the run that this one continues, of clusters and waves.
	Did []event.Event
	// Waits has the waves wait: for an approval, for their pause, and while they soak.
	Waits bool
	// Do runs the command on a cluster. report gets the events of its run.
	Do func(ctx context.Context, cluster string, report func(event.Event)) event.Ending
	// Closed looks at the gates of a cluster once, and returns why not all are open, or "".
	Closed func(ctx context.Context, cluster string) string
	// Digest identifies the configuration of a cluster.
	Digest func(cluster string) (string, error)
	// Approve returns who approves a wave; the error is that of the run if nobody does.
	Approve func(ctx context.Context, w *fleet.Wave) (by string, err error)
	// Record keeps events of the run for one that continues it. Its error ends the run.
	Record func(ctx context.Context, events ...event.Event) error
	Report func(event.Event)
}

// Why a cluster was not begun.
const (
	DoneBefore = "done before"
	NotBegun   = "not begun"
)

// Succeeded reports whether an event says that the command has succeeded for a cluster, in whichever run.
func Succeeded(e event.Event) bool {
	return e.Kind == event.ClusterEnded && e.Ending != nil && e.Ending.Result == event.OutcomeSucceeded ||
		e.Kind == event.ClusterSkipped && e.Text == DoneBefore
}

// Summary is how a run has ended.
type Summary struct {
	Results []event.Event // how each cluster ended, or why it was skipped; in the order of the waves
	Red     string        // the wave that has stopped the run
	Reason  string        // why, unless its clusters tell
	Err     error         // that is no result of a cluster
}

// execution is a run in progress.
type execution struct {
	o        Options
	done     map[string]string    // by cluster: the configuration to which the run before has brought it
	approved map[string]string    // by wave, likewise
	passed   map[string]time.Time // by wave
	ended    time.Time            // when the last wave passed; zero before the first one

	mu      sync.Mutex
	results map[string]event.Event // by cluster
	summary Summary
}

// Run runs the command. A cancelled ctx interrupts the commands that run, and begins none any more.
func Run(ctx context.Context, o Options) Summary {
	x := &execution{o: o, done: map[string]string{}, approved: map[string]string{},
		passed: map[string]time.Time{}, results: map[string]event.Event{}}
	for _, e := range o.Did {
		if e.Kind == event.ClusterStarted || e.Kind == event.WaveEnded {
			delete(x.passed, e.Wave) // it soaks anew
		}
		switch {
		case e.Kind == event.WaveApproved:
			x.approved[e.Wave] = e.Digest
		case e.Kind == event.WaveEnded && e.Text == event.RunOK:
			x.passed[e.Wave] = e.Time
		case e.Kind == event.ClusterEnded && Succeeded(e):
			x.done[e.Cluster] = e.Digest
		case e.Kind == event.ClusterEnded || e.Kind == event.ClusterStarted:
			delete(x.done, e.Cluster)
		}
	}
	if x.stop(o.Record(ctx, o.Did...)) {
		for _, w := range o.Fleet.Waves {
			if !x.wave(ctx, w) {
				break
			}
		}
	}
	for _, w := range o.Fleet.Waves {
		for _, c := range w.Clusters {
			if _, known := x.results[c.Name]; !known {
				x.skip(ctx, w, c.Name, NotBegun)
			}
			x.summary.Results = append(x.summary.Results, x.results[c.Name])
		}
	}
	return x.summary
}

// stop ends the run for an error that is no result of a cluster. It reports whether there is none.
func (x *execution) stop(err error) bool {
	if err != nil && !errors.Is(err, context.Canceled) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.summary.Err = errors.Join(x.summary.Err, err)
	}
	return err == nil
}

// red ends the run at a wave.
func (x *execution) red(ctx context.Context, w *fleet.Wave, reason string) bool {
	if ctx.Err() == nil {
		x.summary.Red, x.summary.Reason = w.Name, reason
		x.report(ctx, event.Event{Kind: event.WaveEnded, Wave: w.Name,
			Text: strings.TrimSuffix("red: "+reason, ": ")})
	}
	return false
}

// wave runs the command on the clusters of a wave, and reports whether the next one may begin.
func (x *execution) wave(ctx context.Context, w *fleet.Wave) bool {
	digests, whole := map[string]string{}, sha256.New()
	for _, c := range w.Clusters {
		digest, err := x.o.Digest(c.Name)
		if err != nil {
			return x.stop(err)
		}
		digests[c.Name] = digest
		fmt.Fprintln(whole, c.Name, digest)
	}
	done := func(c fleet.Cluster) bool { return x.done[c.Name] == digests[c.Name] }
	passed, was := x.passed[w.Name]
	if was && !slices.ContainsFunc(w.Clusters, func(c fleet.Cluster) bool { return !done(c) }) {
		for _, c := range w.Clusters {
			x.skip(ctx, w, c.Name, DoneBefore)
		}
		x.ended = passed
		return true
	}
	if !x.stop(x.await(ctx, w, fmt.Sprintf("%x", whole.Sum(nil)))) || !x.report(ctx, event.Event{
		Kind: event.WaveStarted, Wave: w.Name, Text: strings.Join(fleet.Names(w.Clusters), ", ")}) {
		return false
	}
	n := min(w.Canary, len(w.Clusters)) // of all its clusters, the wave soaks once
	if n > 0 && !x.batch(ctx, w, w.Clusters[:n], 0, digests) ||
		n < len(w.Clusters) && !x.batch(ctx, w, w.Clusters[n:], w.MaxFailures, digests) ||
		!x.report(ctx, event.Event{Kind: event.WaveEnded, Wave: w.Name, Text: event.RunOK}) {
		return false
	}
	x.ended = time.Now()
	return true
}

// await waits for the pause before a wave and for its approval. digest identifies what is approved.
func (x *execution) await(ctx context.Context, w *fleet.Wave, digest string) error {
	if !x.o.Waits {
		return ctx.Err()
	}
	if left := time.Until(x.ended.Add(w.Pause)); w.Pause > 0 && !x.ended.IsZero() && left > 0 {
		x.note(ctx, "wave %s begins in %v", w.Name, left.Round(time.Second))
		if !gate.Sleep(ctx, left) {
			return ctx.Err()
		}
	}
	if !w.Approval || x.approved[w.Name] == digest || ctx.Err() != nil {
		return ctx.Err()
	}
	by, err := x.o.Approve(ctx, w)
	if err == nil {
		x.report(ctx, event.Event{Kind: event.WaveApproved, Wave: w.Name, By: by, Digest: digest})
	}
	return err
}

// batch runs the command on clusters of a wave, lets them soak, and reports whether the run may go on. It
// begins no cluster any more once more than most have failed.
func (x *execution) batch(ctx context.Context, w *fleet.Wave, all []fleet.Cluster, most int,
	digests map[string]string) bool {
	begin, stop := context.WithCancel(ctx)
	defer stop()
	var failed atomic.Int64
	fleet.Each(begin, cmp.Or(w.Parallel, x.o.Parallel), all, func(_ int, c fleet.Cluster) {
		if x.done[c.Name] == digests[c.Name] {
			x.skip(ctx, w, c.Name, DoneBefore)
			return
		}
		good, recorded := x.cluster(ctx, w, c.Name, digests[c.Name])
		if !recorded || !good && failed.Add(1) > int64(most) {
			stop()
		}
	})
	switch {
	case ctx.Err() != nil || x.summary.Err != nil:
		return false
	case failed.Load() > int64(most):
		return x.red(ctx, w, "")
	}
	return x.soak(ctx, w, all)
}

// cluster runs the command on one cluster, and reports whether it succeeded, and whether that is recorded.
func (x *execution) cluster(ctx context.Context, w *fleet.Wave, name, digest string) (good, recorded bool) {
	began := time.Now()
	if !x.report(ctx, event.Event{Kind: event.ClusterStarted, Wave: w.Name, Cluster: name}) {
		return false, false
	}
	ending := x.o.Do(ctx, name, func(e event.Event) {
		e.Wave, e.Cluster = w.Name, name
		x.send(e)
	})
	ending.Seconds = time.Since(began).Seconds()
	e := event.Event{Kind: event.ClusterEnded, Wave: w.Name, Cluster: name, Seconds: ending.Seconds,
		Ending: &ending, Digest: digest}
	if len(ending.Causes) > 0 {
		e.Text = ending.Causes[0].Text
	}
	return Succeeded(e), x.result(ctx, e)
}

// result keeps and reports what has become of a cluster.
func (x *execution) result(ctx context.Context, e event.Event) bool {
	x.mu.Lock()
	x.results[e.Cluster] = e
	x.mu.Unlock()
	return x.report(ctx, e)
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
	x.note(ctx, "wave %s soaks for %v", w.Name, w.Soak)
	end := time.Now().Add(w.Soak)
	for {
		var mu sync.Mutex
		var closed []string
		fleet.Each(ctx, x.o.Parallel, all, func(_ int, c fleet.Cluster) {
			x.mu.Lock()
			good := Succeeded(x.results[c.Name])
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
		if !gate.Sleep(ctx, min(left, max(shortestLook, min(w.Soak/10, longestLook)))) {
			return false
		}
	}
}

// skip notes a cluster that the run does not begin.
func (x *execution) skip(ctx context.Context, w *fleet.Wave, name, why string) {
	x.result(ctx, event.Event{Kind: event.ClusterSkipped, Wave: w.Name, Cluster: name, Text: why})
}

func (x *execution) note(ctx context.Context, format string, args ...any) {
	x.report(ctx, event.Event{Kind: event.Notice, Text: fmt.Sprintf(format, args...)})
}

// report records and sends an event of the run over all clusters, and reports whether the record has it.
func (x *execution) report(ctx context.Context, e event.Event) bool {
	e.Time, e.Run = time.Now(), x.o.Run
	err := x.o.Record(context.WithoutCancel(ctx), e)
	x.send(e)
	return x.stop(err)
}

// send passes on one event at a time.
func (x *execution) send(e event.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.o.Report(e)
}

package castle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/secret"
)

// A stage that failed is explained as far as its surroundings can tell, and
// castle leaves everything that it saw in the run's folder. Explaining changes
// nothing: the stage has failed already, with the same error and exit code, and
// an interrupt ends it at once.

// diagnosisTime bounds what is asked about one failed stage.
const diagnosisTime = 15 * time.Second

// subject is a failed stage: of the configuration, or of what was recorded.
type subject struct {
	layer, name string
	stage       *config.Stage // nil for one that is only recorded
}

// explained adds to a stage's error what its surroundings say. An error that
// they can say nothing about, such as a refusal of a preflight, stays as it is.
func (r *run) explained(ctx context.Context, s subject, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	findings := r.look(ctx, s, err)
	if len(findings) == 0 || ctx.Err() != nil {
		return err // there is nothing to say, or the user has more urgent things to read
	}
	return r.tell(s, findings, err)
}

// finding is one thing that failed and what was found about it.
type finding struct {
	said  event.Diagnosis
	gate  string // its name; empty for a step of Terraform's
	ask   func(context.Context) gate.Diagnosis
	found gate.Diagnosis
}

// look asks what can be found out about a stage's error.
func (r *run) look(ctx context.Context, s subject, err error) []*finding {
	findings := r.findings(s, err)
	asking, stop := context.WithTimeout(ctx, diagnosisTime)
	defer stop()
	var all sync.WaitGroup
	for _, f := range findings {
		all.Go(func() { f.found = bounded(asking, f.ask) })
	}
	all.Wait()
	for _, f := range findings {
		f.said.Cause, f.said.Next = f.found.Cause, r.next(f.found)
		r.showWayOut(s, f)
	}
	return slices.DeleteFunc(findings, (*finding).empty)
}

// empty reports whether there is nothing to say that Terraform has not said itself.
func (f *finding) empty() bool {
	return f.gate == "" && f.found.Cause == "" && len(f.found.Files) == 0
}

// findings lists what of a stage's error can be explained.
func (r *run) findings(s subject, err error) []*finding {
	var all []*finding
	for _, closed := range closedGates(err) {
		for _, g := range s.gates() {
			if g.Name() == closed.Gate {
				all = append(all, &finding{gate: g.Name(), said: waited(g, closed), ask: r.gateInquiry(s.stage, g)})
			}
		}
	}
	if step := new(stepError); len(all) == 0 && errors.As(err, &step) {
		all = append(all, &finding{said: ran(s.name, step), ask: r.stepInquiry(s, step)})
	}
	return all
}

func (s subject) gates() []*config.Gate {
	if s.stage == nil {
		return nil
	}
	return s.stage.Gates
}

// bounded asks, and leaves alone whoever does not come back in time.
func bounded(ctx context.Context, ask func(context.Context) gate.Diagnosis) gate.Diagnosis {
	found := make(chan gate.Diagnosis, 1)
	go func() { found <- ask(ctx) }()
	select {
	case d := <-found:
		return d
	case <-ctx.Done():
	}
	select {
	case d := <-found: // it was stopped and has something all the same
		return d
	case <-time.After(time.Second):
		return gate.Diagnosis{}
	}
}

// gateInquiry lets a gate look round.
func (r *run) gateInquiry(s *config.Stage, g *config.Gate) func(context.Context) gate.Diagnosis {
	return func(ctx context.Context) gate.Diagnosis {
		bound, err := r.gateOf(s, g)
		if err != nil || bound.Diagnose == nil {
			return gate.Diagnosis{}
		}
		return bound.Diagnose(ctx)
	}
}

// closedGates returns the gates that an error joins.
func closedGates(err error) []*GateError {
	if closed, ok := err.(*GateError); ok { //nolint:errorlint // each level is looked at in turn
		return []*GateError{closed}
	}
	switch wrapping := err.(type) { //nolint:errorlint // likewise
	case interface{ Unwrap() []error }:
		var all []*GateError
		for _, e := range wrapping.Unwrap() {
			all = append(all, closedGates(e)...)
		}
		return all
	case interface{ Unwrap() error }:
		return closedGates(wrapping.Unwrap())
	}
	return nil
}

// waited says what was waited for, what was there instead and since when.
func waited(g *config.Gate, closed *GateError) event.Diagnosis {
	d := event.Diagnosis{Since: time.Now(), Seen: strings.TrimPrefix(closed.Error(), "gate "+g.Name()+": ")}
	d.Waited = fmt.Sprintf("gate %s: %s", g.Name(), g.Type.Summary)
	if timeout := new(gate.TimeoutError); errors.As(closed, &timeout) {
		d.Waited = fmt.Sprintf("gate %s, for %s: %s", g.Name(), timeout.Timeout, g.Type.Summary)
		d.Since = d.Since.Add(-timeout.Since)
		d.Seen = "no attempt finished"
		if timeout.Last != nil {
			d.Seen = timeout.Last.Error()
		}
	}
	return d
}

// tell writes what was found, and shows the lines that matter.
func (r *run) tell(s subject, findings []*finding, err error) error {
	files := map[string][]byte{}
	folder := r.files.DiagnosisPath(s.name)
	var summary, hints strings.Builder
	for _, f := range findings {
		f.said.Folder = folder
		for name, data := range f.found.Files {
			files[name] = []byte(r.hidden(string(data)))
		}
		d := r.masked(&f.said)
		fmt.Fprintf(&summary, "waited for  %s\nseen        %s\nsince       %s\nlikely      %s\nnext        %s\n\n",
			d.Waited, d.Seen, d.Since.UTC().Format(time.RFC3339), cmp.Or(d.Cause, "unknown"), cmp.Or(d.Next, "-"))
		if d.Cause != "" {
			fmt.Fprintf(&hints, "\n  likely: %s", d.Cause)
		}
	}
	files["summary.txt"] = []byte(summary.String())
	if keepErr := r.files.KeepDiagnosis(s.name, files); keepErr != nil {
		r.notice(fmt.Sprintf("%s: not all of the diagnosis could be written: %v", s.name, keepErr))
	}
	for _, f := range findings {
		r.emit(event.Event{Kind: event.Diagnosed, Layer: s.layer, Stage: s.name, Gate: f.gate, Diagnosis: &f.said})
	}
	return fmt.Errorf("%w%s\n  diagnosis: %s", err, hints.String(), folder)
}

// next completes the command to look further, so that it works when it is pasted.
func (r *run) next(found gate.Diagnosis) string {
	switch {
	case strings.HasPrefix(found.Look, "kubectl "), strings.HasPrefix(found.Look, "helm "):
		return "KUBECONFIG=" + word(r.dir.Kubeconfig()) + " " + found.Look
	case strings.HasPrefix(found.Look, "talosctl "):
		return "TALOSCONFIG=" + word(r.dir.Talosconfig()) + " " + found.Look
	}
	return found.Look
}

// word quotes s for a shell if it has to be.
func word(s string) string {
	if strings.ContainsAny(s, " \t\n'\"\\$&;|<>()*?[]#~`!{}") {
		return quote(s)
	}
	return s
}

// hidden masks a text of others: what castle knows, and what looks like it.
func (r *run) hidden(text string) string { return r.masker.Hide(secret.HideLikely(text)) }

// masked is a diagnosis without secrets; nil stays nil.
func (r *run) masked(d *event.Diagnosis) *event.Diagnosis {
	if d == nil {
		return nil
	}
	hidden := *d
	for _, text := range []*string{&hidden.Waited, &hidden.Seen, &hidden.Cause, &hidden.Next} {
		*text = r.masker.Hide(*text)
	}
	return &hidden
}

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
	"github.com/ephemeral-castle/castle/internal/process"
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

// look asks what can be found out about a stage's error.
func (r *run) look(ctx context.Context, s subject, err error) []*finding {
	asking, stop := context.WithTimeout(ctx, diagnosisTime)
	defer stop()
	findings := r.findings(asking, s, err)
	var all sync.WaitGroup
	for _, f := range findings {
		if f.ask != nil {
			all.Go(func() { f.found = bounded(asking, f.ask) })
		}
	}
	all.Wait()
	for _, f := range findings {
		f.said.Cause, f.said.Next = f.found.Cause, r.next(f.found)
		r.showWayOut(f)
	}
	r.startOver(s, findings)
	return together(slices.DeleteFunc(findings, (*finding).empty))
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
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return gate.Diagnosis{} // an interrupt waits for nobody
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
		return process.Quote(s)
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

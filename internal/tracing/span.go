package tracing

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
)

// span is an open span and the context of its children.
type span struct {
	ctx  context.Context //nolint:containedctx // that is what it is for
	span trace.Span
	name string
	from time.Time
}

// stage holds the open spans of a stage.
type stage struct {
	whole     *span
	steps     []*span
	gates     map[string]*span
	resources map[string]*span
	turn      bool      // castle reported that the stage started
	last      time.Time // the end of its last step
	failed    string    // why the stage failed; its diagnosis follows
}

// start starts a span below another one; nil is none.
func (t *Tracer) start(below *span, name string, at time.Time, attributes ...attribute.KeyValue) *span {
	parent := t.parent
	if below != nil {
		parent = below.ctx
	}
	ctx, s := t.tracer.Start(parent, name, trace.WithTimestamp(at), trace.WithAttributes(attributes...))
	return &span{ctx: ctx, span: s, name: name, from: at}
}

// end ends a span; failure is the error, if there is one.
func (s *span) end(at time.Time, failure string) {
	if failure != "" {
		s.span.SetStatus(codes.Error, failure)
	}
	s.span.End(trace.WithTimestamp(at))
}

// note adds an event to a span.
func (s *span) note(e event.Event, attributes ...attribute.KeyValue) {
	if e.Text != "" {
		attributes = append(attributes, attribute.String("castle.text", e.Text))
	}
	s.span.AddEvent(string(e.Kind), trace.WithTimestamp(e.Time), trace.WithAttributes(attributes...))
}

// Report adds an event to the spans.
func (t *Tracer) Report(e event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.Kind == event.RunStarted:
		t.endRun(e.Time, "")
		kind, cluster, _ := strings.Cut(e.Text, " ")
		t.run = t.start(nil, kind, e.Time, attributes("run", e.Run, "cluster", cluster, "command", e.Command,
			"by", e.By)...)
	case t.run == nil:
	case e.Kind == event.RunEnded:
		failure := e.Text
		if e.Succeeded() {
			failure = ""
		}
		if e.Ending != nil {
			t.run.span.SetAttributes(attribute.String("castle.result", string(e.Ending.Result)),
				attribute.Int("castle.exit_code", e.Ending.ExitCode))
		}
		t.endRun(e.Time, failure)
	case e.Kind == event.StagesSelected && e.Selection != nil:
		for _, s := range e.Selection.Stages {
			t.chosen[s.Stage] = true
		}
	case e.Stage == "":
		t.run.note(e)
	default:
		t.reportStage(e)
	}
}

// reportStage adds an event of a stage.
func (t *Tracer) reportStage(e event.Event) {
	if result, ends := e.Kind.Ends(); ends {
		t.closeStage(e, result)
		return
	}
	switch e.Kind {
	case event.StageStarted:
		if s := t.stages[e.Stage]; s != nil && !s.turn && len(s.steps) > 0 { // init still runs
			s.whole.span.SetName("stage " + e.Stage)
			s.turn = true
			break
		}
		t.endStage(e.Stage, e.Time, "")
		t.startStage(e).turn = true
	case event.StepStarted:
		s := t.stage(e)
		s.steps = append(s.steps, t.start(s.whole, e.Step, e.Time, about(e)...))
	case event.StepEnded:
		t.stage(e).endStep(e)
	case event.ResourceStarted:
		s := t.stage(e)
		s.resources[e.Address] = t.start(s.step(history.RunsTerraform), e.Action+" "+e.Address,
			e.Time, about(e)...)
	case event.Resource:
		t.endResource(t.stage(e), e)
	case event.GateClosed, event.ReconcileTriggered:
		if e.TimeoutSeconds == 0 && t.stage(e).gates[e.Gate] == nil { // castle checked it, and does not wait
			t.stage(e).whole.note(e, about(e)...)
			break
		}
		t.gate(e).note(e)
	case event.GateOpen, event.GateFailed:
		t.gate(e).end(e.Time, e.Text) // the text is why it failed
		delete(t.stage(e).gates, e.Gate)
	case event.Retry:
		t.stage(e).whole.note(e, attribute.Float64("castle.seconds", e.Seconds))
	case event.Diagnosed:
		if d := e.Diagnosis; d != nil {
			t.stage(e).whole.note(e, attributes("gate", e.Gate, "waited", d.Waited, "seen", d.Seen,
				"cause", d.Cause, "next", d.Next)...)
		}
	default:
		t.stage(e).whole.note(e)
	}
}

// about returns the attributes of the span that an event starts.
func about(e event.Event) []attribute.KeyValue {
	return attributes("layer", e.Layer, "stage", e.Stage, "step", e.Step, "gate", e.Gate,
		"address", e.Address, "action", e.Action)
}

// attributes returns pairs of names and values as attributes; an empty value has none.
func attributes(pairs ...string) (all []attribute.KeyValue) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			all = append(all, attribute.String("castle."+pair[0], pair[1]))
		}
	}
	return all
}

// stage returns the open span of an event's stage. Without one, the event comes before the stage's turn, or
// the run is none in which stages have turns.
func (t *Tracer) stage(e event.Event) *stage {
	if s := t.stages[e.Stage]; s != nil && (s.failed == "" || e.Kind == event.Diagnosed) {
		return s
	}
	t.endStage(e.Stage, e.Time, "")
	return t.startStage(e)
}

func (t *Tracer) startStage(e event.Event) *stage {
	name := "stage "
	if e.Kind != event.StageStarted && t.chosen[e.Stage] {
		name = "prepare "
	}
	only := event.Event{Layer: e.Layer, Stage: e.Stage}
	s := &stage{whole: t.start(t.run, name+e.Stage, e.Time, about(only)...), last: e.Time,
		gates: map[string]*span{}, resources: map[string]*span{}}
	t.stages[e.Stage] = s
	return s
}

// closeStage ends the span of a stage that has ended. One that never had its turn gets a span without length.
func (t *Tracer) closeStage(e event.Event, result event.Result) {
	if s := t.stages[e.Stage]; s == nil || !s.turn {
		t.endStage(e.Stage, e.Time, "")
		turn := event.Event{Kind: event.StageStarted, Layer: e.Layer, Stage: e.Stage, Time: e.Time}
		t.startStage(turn).turn = true
	}
	s, failure := t.stages[e.Stage], ""
	s.whole.span.SetAttributes(attribute.String("castle.result", string(result)))
	switch e.Kind {
	case event.StageFailed:
		s.last, s.failed = e.Time, e.Text
		return
	case event.StageStopped:
		failure = "interrupted"
	case event.StageSkipped:
		s.whole.note(e)
	}
	t.endStage(e.Stage, e.Time, failure)
}

// endStage ends a stage's open spans, if there are any. One that never had its turn ends with its last step.
func (t *Tracer) endStage(name string, at time.Time, failure string) {
	s := t.stages[name]
	if s == nil {
		return
	}
	delete(t.stages, name)
	if s.failed != "" {
		at, failure = s.last, s.failed
	}
	for _, open := range s.resources {
		open.end(at, "not completed")
	}
	for _, open := range s.gates {
		open.end(at, "closed, and castle no longer waits for it")
	}
	for _, open := range s.steps {
		open.end(at, failure)
	}
	if !s.turn && len(s.steps) == 0 {
		at = s.last
	}
	s.whole.end(at, failure)
}

// endRun ends every open span.
func (t *Tracer) endRun(at time.Time, failure string) {
	if t.run == nil {
		return
	}
	for name := range t.stages {
		t.endStage(name, at, "")
	}
	t.run.end(at, failure)
	t.run = nil
	clear(t.chosen)
}

// step returns the last open step whose name is accepted, or the stage itself.
func (s *stage) step(accept func(string) bool) *span {
	for _, open := range slices.Backward(s.steps) {
		if accept(open.name) {
			return open
		}
	}
	return s.whole
}

func (s *stage) endStep(e event.Event) {
	s.last = e.Time
	i := slices.IndexFunc(s.steps, func(open *span) bool { return open.name == e.Step })
	if i < 0 {
		return
	}
	for name, open := range s.gates {
		if e.Step == "gates" {
			open.end(e.Time, "closed, and castle no longer waits for it")
			delete(s.gates, name)
		}
	}
	s.steps[i].end(e.Time, e.Text)
	s.steps = slices.Delete(s.steps, i, i+1)
}

// gate returns the open span of an event's gate. It begins with the step in which castle checks the gate.
func (t *Tracer) gate(e event.Event) *span {
	s := t.stage(e)
	if open := s.gates[e.Gate]; open != nil {
		return open
	}
	below := s.step(func(name string) bool { return name == "gates" })
	from := e.Time
	if below != s.whole {
		from = below.from
	}
	s.gates[e.Gate] = t.start(below, "gate "+e.Gate, from, about(e)...)
	return s.gates[e.Gate]
}

// endResource ends the span of a resource. An import has no beginning.
func (t *Tracer) endResource(s *stage, e event.Event) {
	open, failure := s.resources[e.Address], ""
	if open == nil {
		from := e.Time.Add(-time.Duration(e.Seconds * float64(time.Second)))
		open = t.start(s.step(history.RunsTerraform), e.Action+" "+e.Address, from, about(e)...)
	}
	if e.Text == "failed" {
		failure = e.Text
	}
	open.end(e.Time, failure)
	delete(s.resources, e.Address)
}

// Command is called before each Terraform command of a stage. It returns the variables by which the command's
// own spans belong to the run. The caller calls end with the command's masked error, if there is one. Only
// init has a span of its own: the others are steps.
func (t *Tracer) Command(layer, name, command string) (environ map[string]string, end func(failure string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end = func(string) {}
	if t.run == nil {
		return nil, end
	}
	below := t.run
	if command == "init" {
		e := event.Event{Time: time.Now(), Layer: layer, Stage: name, Step: command}
		e.Kind = event.StepStarted
		s := t.stage(e)
		below = t.start(s.whole, command, e.Time, about(e)...)
		s.steps = append(s.steps, below)
		end = func(failure string) {
			t.mu.Lock()
			defer t.mu.Unlock()
			e.Time, e.Text = time.Now(), failure
			s.endStep(e)
		}
	} else if s := t.stages[name]; s != nil {
		below = s.step(history.RunsTerraform)
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(below.ctx, carrier)
	environ = map[string]string{}
	for key, value := range carrier {
		environ[strings.ToUpper(key)] = value
	}
	return environ, end
}

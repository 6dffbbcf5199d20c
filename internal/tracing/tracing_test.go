package tracing_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/tracing"
)

// server is a collector for OTLP over gRPC.
type server struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*trace.Span
}

func (s *server) Export(_ context.Context, sent *collector.ExportTraceServiceRequest) (
	*collector.ExportTraceServiceResponse, error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range sent.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			s.spans = append(s.spans, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// environment sets variables for the process, where the exporters read them, and returns them.
func environment(t *testing.T, variables ...string) []string {
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return variables
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// traced returns the spans of a run, by name. Each event comes a second after the one before.
func traced(t *testing.T, report func(*tracing.Tracer, func(event.Event))) map[string]*trace.Span {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to, s := &server{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(s, to)
	go s.Serve(listener) //nolint:errcheck // the spans would be missing
	defer s.Stop()
	tracer, err := tracing.New(t.Context(), environment(t, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+listener.Addr().String()), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	now := began
	report(tracer, func(e event.Event) {
		e.Time = now
		now = now.Add(time.Second)
		tracer.Report(e)
	})
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := map[string]*trace.Span{}
	for _, one := range to.spans {
		spans[one.Name] = one
	}
	return spans
}

func names(events []*trace.Span_Event) (all []string) {
	for _, e := range events {
		all = append(all, e.Name)
	}
	return all
}

func TestAFailedGateIsTheErrorOfItsStage(t *testing.T) {
	of := func(kind event.Kind) event.Event {
		return event.Event{Kind: kind, Layer: "storage", Stage: "disks"}
	}
	spans := traced(t, func(_ *tracing.Tracer, say func(event.Event)) {
		say(event.Event{Kind: event.RunStarted, Run: "r1", Text: "create blue/proxmox"})
		say(event.Event{Kind: event.StagesSelected, Selection: &event.Selection{
			Stages: []event.SelectedStage{{Stage: "disks"}}}})
		preflight := of(event.StepStarted)
		preflight.Step = "preflight"
		say(preflight) // at 2s
		preflight.Kind = event.StepEnded
		say(preflight)              // at 3s
		say(of(event.StageStarted)) // at 4s
		step := of(event.StepStarted)
		step.Step = "gates"
		say(step) // at 5s
		closed := of(event.GateClosed)
		closed.Gate, closed.Text, closed.TimeoutSeconds = "workload.a", "0 of 3 ready", 60
		say(closed)
		closed.Text = "1 of 3 ready"
		say(closed)
		other := closed
		other.Gate = "workload.b"
		say(other)
		closed.Kind, closed.Text = event.GateFailed, "timed out"
		say(closed) // at 9s
		step.Kind, step.Text = event.StepEnded, "gate workload.a: timed out"
		say(step)
		failed := of(event.StageFailed)
		failed.Text = "gate workload.a: timed out"
		say(failed) // at 11s
		diagnosed := of(event.Diagnosed)
		diagnosed.Diagnosis = &event.Diagnosis{Seen: "1 of 3 ready", Cause: "no disk"}
		say(diagnosed)
		say(event.Event{Kind: event.RunEnded, Text: "stage disks: timed out",
			Ending: &event.Ending{Result: event.OutcomeFailed, ExitCode: 5}})
	})
	stage, gate := spans["stage disks"], spans["gate workload.a"]
	if stage == nil || gate == nil || spans["prepare disks"] == nil || spans["gate workload.b"] == nil {
		t.Fatalf("spans: %v", spans)
	}
	at := func(second int) uint64 { return uint64(began.Add(time.Duration(second) * time.Second).UnixNano()) }
	for _, want := range []struct {
		span     string
		from, to int
		events   []string
		failure  string
	}{
		{"prepare disks", 2, 3, nil, ""},
		{"stage disks", 4, 11, []string{"diagnosed"}, "gate workload.a: timed out"},
		{"gates", 5, 10, nil, "gate workload.a: timed out"},
		{"gate workload.a", 5, 9, []string{"gate_closed", "gate_closed"}, "timed out"},
		{"gate workload.b", 5, 10, []string{"gate_closed"}, "closed, and castle no longer waits for it"},
		{"create", 0, 13, nil, "stage disks: timed out"},
	} {
		s := spans[want.span]
		if s.StartTimeUnixNano != at(want.from) || s.EndTimeUnixNano != at(want.to) {
			t.Errorf("%s lasts from %v to %v", want.span, time.Unix(0, int64(s.StartTimeUnixNano)).Sub(began),
				time.Unix(0, int64(s.EndTimeUnixNano)).Sub(began))
		}
		if s.Status.GetMessage() != want.failure || !slices.Equal(names(s.Events), want.events) {
			t.Errorf("%s: status %q, events %q", want.span, s.Status.GetMessage(), names(s.Events))
		}
	}
	if string(gate.ParentSpanId) != string(spans["gates"].SpanId) {
		t.Error("the gate is not in its step")
	}
}

func TestAnInitThatRunsAtAStagesTurnBelongsToIt(t *testing.T) {
	var environ map[string]string
	spans := traced(t, func(tracer *tracing.Tracer, say func(event.Event)) {
		say(event.Event{Kind: event.RunStarted, Text: "create blue/proxmox"})
		say(event.Event{Kind: event.StagesSelected, Selection: &event.Selection{
			Stages: []event.SelectedStage{{Stage: "disks"}}}})
		var end func(string)
		environ, end = tracer.Command("storage", "disks", "init")
		say(event.Event{Kind: event.StageStarted, Layer: "storage", Stage: "disks"})
		end("no network")
		say(event.Event{Kind: event.RunEnded, Text: event.RunOK})
	})
	init, stage := spans["init"], spans["stage disks"]
	if stage == nil || spans["prepare disks"] != nil || string(init.ParentSpanId) != string(stage.SpanId) {
		t.Fatalf("spans: %v", spans)
	}
	if init.Status.GetMessage() != "no network" || spans["create"].Status.GetMessage() != "" {
		t.Errorf("init: %v, run: %v", init.Status, spans["create"].Status)
	}
	if !strings.Contains(environ["TRACEPARENT"], "-") || len(environ) != 1 {
		t.Errorf("the environment of init: %v", environ)
	}
}

func TestACollectorThatNeverAnswersIsNotWaitedFor(t *testing.T) {
	ended := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	defer silent.Close()
	defer close(ended)
	environ := environment(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+silent.URL)
	tracer, err := tracing.New(t.Context(), environ, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	tracer.Report(event.Event{Time: time.Now(), Kind: event.RunStarted, Text: "create blue/proxmox"})
	closed := make(chan error)
	go func() { closed <- tracer.Close(t.Context()) }()
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
			t.Errorf("the error is %v", err)
		}
	case <-time.After(20 * time.Second): // generous: the flush is bounded to 3
		t.Error("the end of the run waits for the collector")
	}
}

func TestWithoutAnEndpointThereIsNoTracer(t *testing.T) {
	for _, environ := range [][]string{
		nil,
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=TRUE"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none"},
	} {
		tracer, err := tracing.New(t.Context(), environ, "1.2.3")
		if tracer != nil || err != nil {
			t.Errorf("%v: %v, %v", environ, tracer, err)
		}
	}
	_, err := tracing.New(t.Context(), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"}, "1.2.3")
	if err == nil {
		t.Error("an unknown protocol is no error")
	}
}

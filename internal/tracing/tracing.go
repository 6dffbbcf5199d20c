// Package tracing sends runs to an OpenTelemetry collector, as spans that it builds from a run's events:
//
//	create                         the run
//	  prepare machines             steps before the stage's turn: init, preflight
//	  stage machines               from its turn until it is ready or failed
//	    plan, apply, gates …       steps
//	      create vm["cp-01"]       a resource, in the step that changes it
//	      gate nodes.ready         from the beginning of the step until it is open
//
// The environment configures it, with OpenTelemetry's own variables; without an endpoint there is no Tracer
// and no cost. Spans leave in the background. A collector that does not answer costs a run at most flushTime,
// at its end, and never its result. Events arrive masked, and spans hold nothing else.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/secret"
)

const (
	// flushTime bounds how long Close waits for the collector.
	flushTime = 3 * time.Second
	// retryTime bounds the repetitions of one request, so that Close rarely needs all of flushTime.
	retryTime = 2 * time.Second
)

// The variables that decide whether and how spans are sent. The exporters read the others.
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	headersVariable        = "OTEL_EXPORTER_OTLP_HEADERS"
	tracesHeadersVariable  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	disabledVariable       = "OTEL_SDK_DISABLED"
	exporterVariable       = "OTEL_TRACES_EXPORTER"
)

// Tracer turns the events of a run into spans.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	parent   context.Context //nolint:containedctx // holds the span of TRACEPARENT
	hide     func(string) string

	mu     sync.Mutex
	run    *span // nil outside of a run
	stages map[string]*stage
	chosen map[string]bool // stages whose turn comes; a step before that prepares them

	failures sync.Mutex
	failed   error // the first one
}

// New returns a Tracer for castle in a version; nil if the environment does not ask for one. The variables
// have to be those of the process: the exporters read them there.
func New(ctx context.Context, environ []string, version string) (*Tracer, error) {
	get := func(name string) string { return process.Getenv(environ, name) }
	endpoint := cmp.Or(get(tracesEndpointVariable), get(endpointVariable))
	if endpoint == "" || strings.EqualFold(get(disabledVariable), "true") || get(exporterVariable) == "none" {
		return nil, nil
	}
	t := &Tracer{hide: masker(get).Hide, stages: map[string]*stage{}, chosen: map[string]bool{}}
	// The SDK logs to stderr otherwise, headers that it cannot read included.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.fail))
	exporter, err := newExporter(ctx, cmp.Or(get(tracesProtocolVariable), get(protocolVariable)))
	if err != nil {
		return nil, t.masked(err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "castle"),
			attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		t.fail(err)
	}
	t.provider = sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	t.tracer = t.provider.Tracer("github.com/ephemeral-castle/castle",
		trace.WithInstrumentationVersion(version))
	t.parent = propagation.TraceContext{}.Extract(context.WithoutCancel(ctx), propagation.MapCarrier{
		"traceparent": get("TRACEPARENT"), "tracestate": get("TRACESTATE"),
	})
	return t, nil
}

// newExporter returns the exporter of a protocol.
func newExporter(ctx context.Context, protocol string) (*otlptrace.Exporter, error) {
	const first, longest = 200 * time.Millisecond, time.Second
	switch protocol {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: first, MaxInterval: longest, MaxElapsedTime: retryTime}))
	case "grpc":
		return otlptracegrpc.New(ctx, otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: first, MaxInterval: longest, MaxElapsedTime: retryTime}))
	}
	return nil, fmt.Errorf("%s=%s: castle sends grpc or http/protobuf", protocolVariable, protocol)
}

// masker masks what the variables hold that is secret: a collector may send it back in an error.
func masker(get func(string) string) *secret.Masker {
	m := &secret.Masker{}
	for _, name := range []string{headersVariable, tracesHeadersVariable} {
		for header := range strings.SplitSeq(get(name), ",") {
			_, value, _ := strings.Cut(header, "=")
			m.Add(strings.TrimSpace(value))
			if plain, err := url.PathUnescape(strings.TrimSpace(value)); err == nil {
				m.Add(append(strings.Fields(plain), plain)...) // Bearer and its token, too
			}
		}
	}
	for _, name := range []string{endpointVariable, tracesEndpointVariable} {
		if at, err := url.Parse(get(name)); err == nil && at.User != nil {
			password, _ := at.User.Password()
			m.Add(password)
		}
	}
	return m
}

// Close ends what has not ended and sends what is left, for at most flushTime. The error is the first.
func (t *Tracer) Close(ctx context.Context) error {
	t.mu.Lock()
	t.endRun(time.Now(), "")
	t.mu.Unlock()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer stop()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.fail(err)
	}
	t.failures.Lock()
	defer t.failures.Unlock()
	return t.masked(t.failed)
}

// fail notes an error of the SDK or the exporter.
func (t *Tracer) fail(err error) {
	t.failures.Lock()
	defer t.failures.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

// masked returns an error without secrets, in one line.
func (t *Tracer) masked(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(strings.Fields(t.hide(err.Error())), " "))
}

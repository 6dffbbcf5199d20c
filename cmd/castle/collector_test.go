package main

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collected is an OpenTelemetry collector on this machine, for OTLP over HTTP:
//
//	collector [CODE]  starts it; OTEL_EXPORTER_OTLP_ENDPOINT is its URL. With a code it refuses every
//	                  request, and sends the Authorization header back
//	spans [STAGE]     prints the trees of the spans that arrived since the last spans, and checks that each
//	                  lies within the times of its parent; a root's parent, if it has one, is in its line.
//	                  The init of the stage is left out: it begins shortly before or after the stage's turn
type collected struct {
	mu            sync.Mutex
	code          string
	spans         []*trace.Span
	authorization string // of the last request
	resource      string
}

type collectedKey struct{}

func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorization = r.Header.Get("Authorization")
	if c.code != "" {
		http.Error(w, "refused: "+c.authorization, http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(r.Body)
	sent := &collector.ExportTraceServiceRequest{}
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, sent) != nil {
		http.Error(w, "not a request of OTLP", http.StatusBadRequest)
		return
	}
	for _, of := range sent.ResourceSpans {
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				c.resource = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

func startCollector(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: collector [code]")
	}
	c := ts.Value(collectedKey{}).(*collected)
	c.code = strings.Join(args, "")
	server := httptest.NewServer(c)
	ts.Defer(server.Close)
	ts.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
}

func spans(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: spans [stage]")
	}
	first := strings.Join(args, "")
	c := ts.Value(collectedKey{}).(*collected)
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(ts.Stdout(), "service %s, authorization %q\n", c.resource, c.authorization)
	byID := map[string]*trace.Span{}
	for _, s := range c.spans {
		byID[string(s.SpanId)] = s
	}
	slices.SortFunc(c.spans, func(a, b *trace.Span) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano))
	})
	var write func(parent *trace.Span, indent string)
	write = func(parent *trace.Span, indent string) {
		for _, s := range c.spans {
			above := byID[string(s.ParentSpanId)]
			early := s.Name == "init" && above != nil && strings.HasSuffix(above.Name, " "+first)
			if above != parent || first != "" && (early || s.Name == "prepare "+first) {
				continue
			}
			line := indent + s.Name
			switch {
			case parent == nil && len(s.ParentSpanId) > 0:
				line += fmt.Sprintf(" (parent %s of trace %s, %q)", hex.EncodeToString(s.ParentSpanId),
					hex.EncodeToString(s.TraceId), s.TraceState)
			case parent != nil && string(s.TraceId) != string(parent.TraceId):
				ts.Fatalf("%s is in another trace than its parent %s", s.Name, parent.Name)
			case parent != nil && (s.StartTimeUnixNano < parent.StartTimeUnixNano ||
				s.EndTimeUnixNano > parent.EndTimeUnixNano):
				ts.Fatalf("%s lasts longer than its parent %s", s.Name, parent.Name)
			}
			if s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR {
				line += ": error: " + strings.Split(s.Status.Message, "\n")[0]
			}
			fmt.Fprintln(ts.Stdout(), line)
			var events []string
			for _, e := range s.Events {
				if !slices.Contains(events, e.Name) { // how often a gate answers depends on the machine
					events = append(events, e.Name)
					fmt.Fprintln(ts.Stdout(), indent+"  - "+e.Name)
				}
			}
			write(s, indent+"  ")
		}
	}
	write(nil, "")
	c.spans = nil
}

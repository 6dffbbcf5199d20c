package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/report"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// run makes the events of a run from lines at seconds after its begin.
type run struct {
	id     string
	events []event.Event
}

func newRun(id, text string) *run {
	return (&run{id: id}).add(0, event.Event{Kind: event.RunStarted, Text: text})
}

func (r *run) add(at float64, events ...event.Event) *run {
	for _, e := range events {
		e.Run, e.Time = r.id, began.Add(time.Duration(at*float64(time.Second)))
		r.events = append(r.events, e)
	}
	return r
}

// step adds a step of a stage.
func (r *run) step(stage, layer, step string, from, to float64, inside ...event.Event) *run {
	e := event.Event{Kind: event.StepStarted, Stage: stage, Layer: layer, Step: step}
	r.add(from, e)
	for _, i := range inside {
		i.Stage, i.Layer = stage, layer
		r.add(from+i.Seconds, i)
	}
	e.Kind, e.Seconds = event.StepEnded, to-from
	return r.add(to, e)
}

// hostile is a text that every format has to escape.
const hostile = "</text><script>alert(1)</script> & \"quoted\" | `code` *bold* \x01 @somebody"

// failed is a create of three stages: machines is ready, metallb fails at a gate, pool is skipped.
func failed() []event.Event {
	at := func(kind event.Kind, stage, layer, text string) event.Event {
		return event.Event{Kind: kind, Stage: stage, Layer: layer, Text: text}
	}
	r := newRun("20260301T120000.000-create-000001", "create blue/proxmox")
	r.add(1, at(event.StageStarted, "machines", "platform", ""))
	r.step("machines", "platform", "plan", 1, 3)
	r.add(3, event.Event{Kind: event.Retry, Stage: "machines", Layer: "platform", Step: "apply",
		Text: "1 of 5 in 5s: apply: the lock is busy"})
	r.step("machines", "platform", "apply", 8, 38,
		event.Event{Kind: event.ResourceStarted, Address: `vm["cp-01"]`, Action: "create"},
		event.Event{Kind: event.Resource, Address: `vm["cp-01"]`, Action: "create", Text: "done",
			Seconds: 29})
	r.step("machines", "platform", "gates", 38, 50,
		event.Event{Kind: event.GateClosed, Gate: "etcd", Text: "no quorum", Seconds: 1},
		event.Event{Kind: event.GateOpen, Gate: "etcd", Seconds: 12})
	r.add(50, at(event.StageReady, "machines", "platform", ""))
	r.add(51, at(event.StageStarted, "metallb", "networking", ""))
	r.step("metallb", "networking", "apply", 52, 60,
		event.Event{Kind: event.ResourceStarted, Address: "helm_release.metallb", Action: "create"},
		event.Event{Kind: event.Resource, Address: "helm_release.metallb", Action: "create", Text: "failed",
			Seconds: 7})
	r.step("metallb", "networking", "gates", 60, 90,
		event.Event{Kind: event.GateOpen, Gate: "crd", Seconds: 2},
		event.Event{Kind: event.GateFailed, Gate: "webhook.objects", Text: hostile, Seconds: 30})
	r.add(90, at(event.StageFailed, "metallb", "networking", "gate webhook.objects: "+hostile))
	r.add(90, event.Event{Kind: event.Diagnosed, Stage: "metallb", Layer: "networking",
		Gate: "webhook.objects", Diagnosis: &event.Diagnosis{
			Waited: "gate webhook.objects", Seen: "no endpoints", Cause: "the image is missing",
			Next: "kubectl get pods", Folder: "/state/diagnosis/metallb",
		}})
	r.add(90, at(event.StageSkipped, "pool", "networking", "dependency metallb failed"))
	r.add(50, event.Event{Kind: event.FluxConverged, Stage: "machines", Layer: "platform", Gate: "flux.x",
		Flux: &[]event.FluxStep{
			{Name: "kustomization flux-system/root", Ready: ready(60), Seconds: new(4.0), Critical: true},
			{Name: "helmrelease web/blog", Ready: ready(85), Seconds: new(25.0), Critical: true, Waits: true,
				DependsOn: []string{"helmrelease web/database", "helmrelease web/cache"}},
			{Name: "kustomization flux-system/apps", Reason: hostile, Waits: true}}})
	r.add(91, at(event.Notice, "", "", "a note"))
	r.add(91, event.Event{Kind: event.RunEnded, Text: "stage metallb: gate\nstage metallb: gate", Seconds: 91,
		Ending: &event.Ending{
			Result: event.OutcomeFailed, ExitCode: 5, Resume: "castle create blue",
			Causes: []event.Cause{{Text: "the image is missing", Next: "kubectl get pods",
				Stages: []string{"metallb"}, Gates: []string{"webhook.objects"}, Follow: 2},
				{Text: hostile}},
		}})
	return r.events
}

func ready(second int) *time.Time { return new(began.Add(time.Duration(second) * time.Second)) }

// earlier is a create in which the gates of metallb opened after some seconds.
func earlier(webhook float64) *history.Timeline {
	r := newRun("20260228T120000.000-create-000000", "create blue/proxmox")
	r.add(1, event.Event{Kind: event.StageStarted, Stage: "metallb", Layer: "networking"})
	r.step("metallb", "networking", "gates", 2, 40,
		event.Event{Kind: event.GateOpen, Gate: "webhook.objects", Seconds: webhook})
	r.add(40, event.Event{Kind: event.StageReady, Stage: "metallb", Layer: "networking"})
	return history.Fold(r.add(40, event.Event{Kind: event.RunEnded, Text: event.RunOK, Seconds: 40,
		Ending: &event.Ending{Result: event.OutcomeSucceeded}}).events)
}

func newReport() report.Report {
	path := []report.Step{{Stage: "machines", Seconds: 49}, {Stage: "metallb", Late: true, Seconds: 30}}
	destroy := newRun("20260227T120000.000-destroy-000000", "destroy blue/proxmox")
	return report.New(failed(), path, earlier(9), earlier(11), earlier(10), history.Fold(destroy.events))
}

func TestReportSumsARunUp(t *testing.T) {
	r := newReport()
	for _, c := range []struct{ what, got, want string }{
		{"title", r.Title(), "create blue/proxmox: failed after 1m31s"},
		{"totals", strings.Join(r.Totals(), "; "), "3 stages: 1 failed, 1 ready, 1 skipped; " +
			"1 resource created; 3 gates: 2 open, 1 failed; 1 retry"},
		{"path", r.Path(), "machines 49.0s → metallb (late gates) 30.0s"},
		{"cause", r.Causes[0].String(), "metallb: the image is missing\ngates: webhook.objects and 2 " +
			"further ones in consequence\nnext: kubectl get pods"},
		{"slower", r.Slower[0].String(), "gate metallb webhook.objects took 3.0 × its usual: 30.0s, " +
			"not 10.0s"},
		{"error", r.Error, "stage metallb: gate"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, c.got, c.want)
		}
	}
	if r.Earlier != 3 || len(r.Slower) != 1 {
		t.Errorf("compared with %d runs: %v", r.Earlier, r.Slower)
	}
	if *r.ExitCode != 5 || r.Resume != "castle create blue" || r.CriticalSeconds != 79 {
		t.Errorf("got exit code %d, resume %q, critical path %f", *r.ExitCode, r.Resume, r.CriticalSeconds)
	}
	if r.Slowest[0].Address != `vm["cp-01"]` || r.Slowest[0].Seconds != 29 || !r.Slowest[1].Failed {
		t.Errorf("slowest: %+v", r.Slowest)
	}
	machines := r.Stages[0]
	if machines.TerraformSeconds != 32 || machines.GateSeconds != 12 || machines.Seconds != 49 ||
		!machines.Critical {
		t.Errorf("got %+v", machines)
	}
}

func TestRunWithoutAnEndIsUnfinished(t *testing.T) {
	events := failed()
	killed := report.New(events[:5], nil)
	if killed.Result != "unfinished" || killed.Stages[0].Result != "unfinished" || killed.ExitCode != nil {
		t.Errorf("got %s, stage %s", killed.Result, killed.Stages[0].Result)
	}
	if empty := report.New(nil, nil); empty.Result != "unfinished" {
		t.Errorf("without events: %s", empty.Result)
	}
}

func TestFluxOfAnEarlierRunIsNoPartOfAReport(t *testing.T) {
	r := newRun("20260301T130000.000-rollout-000001", "rollout blue/proxmox")
	r.add(4000, event.Event{Kind: event.RunStarted}, event.Event{Kind: event.FluxConverged,
		Flux: &[]event.FluxStep{{Name: "kustomization flux-system/root", Ready: ready(60)}}})
	if all := report.New(r.events, nil); len(all.Flux) > 0 {
		t.Errorf("got %+v", all.Flux)
	}
}

// TestFormats compares every format with its golden file; CASTLE_UPDATE_SCRIPTS=1 writes them.
func TestFormats(t *testing.T) {
	r := newReport()
	for format, file := range map[string]string{"text": "report.txt", "markdown": "report.md",
		"html": "report.html", "json": "report.json", "junit": "report.xml"} {
		var got bytes.Buffer
		if err := r.Write(&got, format); err != nil {
			t.Fatal(err)
		}
		golden(t, file, got.Bytes())
		if named, err := report.FormatOf(file); err != nil || named != format {
			t.Errorf("%s: %s, %v", file, named, err)
		}
		interpreted, _, _ := strings.Cut(got.String(), "```text\n") // Markdown's code may hold anything
		if slices.Contains([]string{"markdown", "html", "junit"}, format) &&
			strings.Contains(interpreted, "<script>alert") {
			t.Errorf("%s does not escape a text", format)
		}
	}
	if _, err := report.FormatOf("report.pdf"); err == nil {
		t.Error("report.pdf has a format")
	}
	if err := r.Write(io.Discard, "pdf"); err == nil {
		t.Error("pdf is a format")
	}
}

func TestJUnitAndJSONAreWellFormed(t *testing.T) {
	r := newReport()
	var junit, inJSON bytes.Buffer
	if err := r.WriteJUnit(&junit); err != nil {
		t.Fatal(err)
	}
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suites); err != nil {
		t.Fatal(err)
	}
	if suites.Tests != 6 || suites.Failures != 2 || suites.Skipped != 1 {
		t.Errorf("got %+v", suites)
	}
	if err := r.WriteJSON(&inJSON); err != nil || !json.Valid(inJSON.Bytes()) {
		t.Errorf("not JSON: %v", err)
	}
}

// A run that fails before its first stage has no failed stage; its JUnit must not look green.
func TestRefusedRunHasAFailedTest(t *testing.T) {
	refused := newRun("20260301T120000.000-create-000001", "create blue/proxmox")
	refused.add(1, event.Event{Kind: event.RunEnded, Text: "VM 423 belongs to somebody else",
		Ending: &event.Ending{Result: event.OutcomeRefused, ExitCode: 4}})
	r := report.New(refused.events, nil)
	var junit bytes.Buffer
	if err := r.WriteJUnit(&junit); err != nil {
		t.Fatal(err)
	}
	if text := junit.String(); !strings.Contains(text, `failures="1"`) || !strings.Contains(text, "VM 423") {
		t.Errorf("got %s", text)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("CASTLE_UPDATE_SCRIPTS") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the golden file; got:\n%s", name, got)
	}
}

func TestTheTimelineFitsTheTerminal(t *testing.T) {
	stages := history.Fold(failed()).Whole.Stages
	for width, hasBars := range map[int]bool{0: true, 200: true, 80: true, 72: true, 50: false,
		40: true, 30: false} {
		var w strings.Builder
		report.WriteTimeline(&w, stages, width)
		if got := strings.ContainsAny(w.String(), "█▒·"); got != hasBars {
			t.Errorf("width %d: has bars is %t:\n%s", width, got, w.String())
		}
		for line := range strings.SplitSeq(w.String(), "\n") {
			if n := utf8.RuneCountInString(line); width > 0 && n > width {
				t.Errorf("width %d: %d columns in %q", width, n, line)
			}
		}
	}
}

func TestARolloutHasItsMachines(t *testing.T) {
	r := report.New([]event.Event{
		{Kind: event.RunStarted, Text: "rollout blue/proxmox"},
		{Kind: event.MachineReady, Machine: "worker-01", Action: "change", Seconds: 90},
		{Kind: event.MachineFailed, Machine: "cp-01", Action: "replace", Seconds: 3, Text: "closed"},
	}, nil)
	for _, format := range []string{"text", "markdown", "html", "json"} {
		var got bytes.Buffer
		if err := r.Write(&got, format); err != nil {
			t.Fatal(err)
		}
		wants := []string{"worker-01: change took 1m30s", "cp-01: replace failed after 3.0s"}
		if format == "json" {
			wants = []string{`"machine": "cp-01",`, `"action": "replace",`}
		}
		for _, want := range wants {
			if !strings.Contains(got.String(), want) {
				t.Errorf("%s lacks %q:\n%s", format, want, got.String())
			}
		}
	}
}

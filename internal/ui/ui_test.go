package ui_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/ui"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after is an event of stage secrets/seed, so many seconds into the run.
func after(seconds float64, kind event.Kind, more ...func(*event.Event)) event.Event {
	at := began.Add(time.Duration(seconds * float64(time.Second)))
	e := event.Event{Time: at, Kind: kind, Layer: "secrets", Stage: "seed"}
	for _, m := range more {
		m(&e)
	}
	return e
}

func text(s string) func(*event.Event) { return func(e *event.Event) { e.Text = s } }

func step(name string, seconds float64) func(*event.Event) {
	return func(e *event.Event) { e.Step, e.Seconds = name, seconds }
}

func TestEachChangeOfStateIsOneLine(t *testing.T) {
	const at = "    0.0s  secrets/seed               "
	for _, c := range []struct {
		name    string
		event   event.Event
		verbose bool
		want    string
	}{
		{"a run", event.Event{Time: began, Kind: event.RunStarted, Run: "r1", Text: "create blue/proxmox"},
			false,
			"    0.0s  create blue/proxmox (run r1)\n"},
		{"a stage", after(0, event.StageStarted), false, at + "started\n"},
		{"a quick step", after(0, event.StepEnded, step("plan", 29)), false, ""},
		{"a quick step, verbosely", after(0, event.StepEnded, step("plan", 0.9)), true, at + "plan 0.9s\n"},
		{"a long step", after(0, event.StepEnded, step("apply", 61)), false, at + "apply 61.0s\n"},
		{"a failed step, whose stage says why",
			after(0, event.StepEnded, step("apply", 61), text("no")), true, ""},
		{"a resource", after(0, event.Resource), false, ""},
		{"a retry", after(0, event.Retry, step("apply", 2), text("1 of 5 in 2s: apply: no")), false,
			at + "retry 1 of 5 in 2s: apply: no\n"},
		{"ready", after(0, event.StageReady, step("", 2)), false, at + "ready after 2.0s\n"},
		{"up to date", after(0, event.StageUpToDate), false, at + "up to date\n"},
		{"gone", after(0, event.StageGone, text("ended with the cluster")), false,
			at + "gone: ended with the cluster\n"},
		{"failed in two lines", after(0, event.StageFailed, text("one\ntwo")), false,
			at + "failed: one\n          two\n"},
		{"skipped", after(0, event.StageSkipped, text("dependency pool failed")), false,
			at + "skipped: dependency pool failed\n"},
		{"a notice", event.Event{Time: began, Kind: event.Notice, Text: "taking over"}, false,
			"    0.0s  note: taking over\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w bytes.Buffer
			ui.NewLines(&w, ui.Options{Verbose: c.verbose}).Report(c.event)
			if got := w.String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTimesCountFromTheFirstEvent(t *testing.T) {
	var w bytes.Buffer
	l := ui.NewLines(&w, ui.Options{})
	l.Report(after(100, event.StageStarted))
	l.Report(after(175.25, event.StageReady))
	if got := w.String(); !strings.Contains(got, "\n   75.2s  secrets/seed") {
		t.Errorf("got %q", got)
	}
}

func TestPlainOutputHasNoControlCharacters(t *testing.T) {
	var w bytes.Buffer
	l := ui.NewLines(&w, ui.Options{Verbose: true})
	for _, e := range []event.Event{
		after(0, event.StageStarted), after(0, event.StepStarted, step("apply", 0)),
		after(1, event.StepEnded, step("apply", 1)), after(2, event.StageFailed, text("no")),
		after(2, event.RunEnded),
	} {
		l.Report(e)
	}
	l.Timeline(&w)
	if strings.ContainsAny(w.String(), "\x1b\r") {
		t.Errorf("got %q", w.String())
	}
}

func TestJSONIsOneEventALine(t *testing.T) {
	var w bytes.Buffer
	j := ui.NewJSON(&w)
	events := []event.Event{after(0, event.StageStarted), after(1, event.StageFailed, text("one\ntwo"))}
	for _, e := range events {
		j.Report(e)
	}
	lines := strings.Split(strings.TrimSuffix(w.String(), "\n"), "\n")
	if len(lines) != len(events) {
		t.Fatalf("got %d lines: %q", len(lines), lines)
	}
	for i, line := range lines {
		var got event.Event
		if err := json.Unmarshal([]byte(line), &got); err != nil || got != events[i] {
			t.Errorf("got %s, %v", line, err)
		}
	}
}

func TestTimelineHasTheResultAndTimesOfEachStage(t *testing.T) {
	var w bytes.Buffer
	stage := func(name string) func(*event.Event) { return func(e *event.Event) { e.Stage = name } }
	l := ui.NewLines(io.Discard, ui.Options{})
	for _, e := range []event.Event{
		after(0, event.StageUpToDate, stage("keys")),
		after(0, event.StageStarted), after(40, event.StepStarted, step("plan", 0)),
		after(60, event.StepEnded, step("plan", 20)), after(60, event.StepStarted, step("apply", 0)),
		after(75, event.StepEnded, step("apply", 55)), after(75, event.StepStarted, step("gates", 0)),
		after(90, event.StepEnded, step("gates", 15)),
		after(90, event.StageReady), after(90, event.StageStarted, stage("late")),
		after(120, event.RunEnded, stage("")),
	} {
		l.Report(e)
	}
	l.Timeline(&w)
	want := strings.Join([]string{
		"layer    stage  result      terraform  gates  total  █ terraform ▒ gates",
		"secrets  keys   up to date  -          -      -      ·",
		"secrets  seed   ready       1m15s      15.0s  1m30s  ··············████████████▒▒▒▒▒▒",
		"secrets  late   unfinished  -          -      -                                      ·",
		"                                              1m30s",
		"",
	}, "\n")
	if got := w.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestARunThatTouchedNoStageHasNoTimeline(t *testing.T) {
	var w bytes.Buffer
	l := ui.NewLines(io.Discard, ui.Options{})
	l.Report(event.Event{Time: began, Kind: event.RunStarted})
	l.Report(event.Event{Time: began, Kind: event.RunEnded})
	l.Timeline(&w)
	if w.Len() > 0 {
		t.Errorf("got %q", w.String())
	}
}

func TestACauseThatBeginsWithWhatWasSeenStandsAlone(t *testing.T) {
	const seen = "webhook: its CA has expired"
	e := event.Event{Time: time.Now(), Kind: event.Diagnosed, Layer: "storage", Stage: "longhorn",
		Diagnosis: &event.Diagnosis{Waited: "gate webhook", Seen: seen, Cause: seen + "; a clock is wrong"}}
	var w bytes.Buffer
	ui.NewLines(&w, ui.Options{}).Report(e)
	if n := strings.Count(w.String(), seen); n != 1 {
		t.Errorf("%d times in\n%s", n, w.String())
	}
}

func TestADiagnosisIsPrintedInFiveLines(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.Local)
	d := &event.Diagnosis{
		Waited: "gate workload.speaker, for 5m0s: it is rolled out", Seen: "daemonset a/b: 0 of 1\npods",
		Since: now.Add(-90 * time.Second), Cause: "no node matches",
		Next: "KUBECONFIG=/k kubectl -n a describe daemonset b", Folder: "/runs/1/diagnosis/metallb",
	}
	e := event.Event{Time: now, Kind: event.Diagnosed, Layer: "networking", Stage: "metallb", Diagnosis: d}
	var w bytes.Buffer
	ui.NewLines(&w, ui.Options{}).Report(e)
	want := `    0.0s  networking/metallb         diagnosis in /runs/1/diagnosis/metallb
          waited for  gate workload.speaker, for 5m0s: it is rolled out
          seen        daemonset a/b: 0 of 1 pods
          since       15:02:35, 1m30s ago
          likely      no node matches
          next        KUBECONFIG=/k kubectl -n a describe daemonset b
`
	if w.String() != want {
		t.Errorf("got\n%s\nwant\n%s", w.String(), want)
	}
}

func TestADiagnosisWithoutACauseSaysSo(t *testing.T) {
	var w bytes.Buffer
	d := &event.Diagnosis{Waited: "b", Seen: "c", Since: time.Now(), Folder: "d"}
	e := event.Event{Time: time.Now(), Kind: event.Diagnosed, Stage: "a", Diagnosis: d}
	ui.NewLines(&w, ui.Options{}).Report(e)
	if got := w.String(); !strings.Contains(got, "likely      no known cause\n") ||
		strings.Contains(got, "next") {
		t.Errorf("got %s", got)
	}
}

func TestDiagnosticsPrintNoLineOfASecretFile(t *testing.T) {
	open := &hcl.File{Bytes: []byte("node = \"pve\"\n")}
	at := func(file string, line, from, to int) *hcl.Range {
		start, end := hcl.Pos{Line: line, Column: 1, Byte: from},
			hcl.Pos{Line: line, Column: 1 + to - from, Byte: to}
		return &hcl.Range{Filename: file, Start: start, End: end}
	}
	var w bytes.Buffer
	_, err := ui.WriteDiagnostics(&w, hcl.Diagnostics{
		{
			Severity: hcl.DiagError, Summary: "node: unsuitable", Detail: "Say why.",
			Subject: at("terraform.tfvars", 1, 0, 12),
		},
		{Severity: hcl.DiagError, Summary: "tokn: not declared", Subject: at("secrets.tfvars", 2, 20, 30)},
		{Severity: hcl.DiagError, Summary: "moat: not declared", Subject: at("--var moat", 1, 0, 0)},
	}, map[string]*hcl.File{"terraform.tfvars": open}, false)
	if err != nil {
		t.Fatal(err)
	}
	got := w.String()
	for _, want := range []string{
		"Error: node: unsuitable\n\n  on terraform.tfvars line 1:\n   1: node = \"pve\"\n\nSay why.\n",
		"Error: secrets.tfvars:2: tokn: not declared\n",
		"Error: --var moat: moat: not declared\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

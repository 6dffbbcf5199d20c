package ui

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// a returns an event so many seconds after the start; stage is layer/name.
func a(seconds int, kind event.Kind, stage string, more ...func(*event.Event)) event.Event {
	e := event.Event{Time: start.Add(time.Duration(seconds) * time.Second), Kind: kind}
	e.Layer, e.Stage, _ = strings.Cut(stage, "/")
	for _, m := range more {
		m(&e)
	}
	return e
}

func stepped(name string, total int) func(*event.Event) {
	return func(e *event.Event) { e.Step, e.Total = name, total }
}

func on(address string) func(*event.Event) {
	return func(e *event.Event) { e.Address, e.Action, e.Total = address, "create", 18 }
}

func gated(gate, why string) func(*event.Event) {
	return func(e *event.Event) { e.Gate, e.Text, e.TimeoutSeconds = gate, why, 600 }
}

func text(s string) func(*event.Event) { return func(e *event.Event) { e.Text = s } }

// selection is a create of six stages in four layers.
func selection(e *event.Event) {
	e.Selection = &event.Selection{Command: "create", Stages: []event.SelectedStage{
		{Layer: "secrets", Stage: "infisical"},
		{Layer: "secrets", Stage: "keys"},
		{Layer: "platform", Stage: "machines", Needs: []string{"infisical", "keys"}},
		{Layer: "networking", Stage: "metallb", Needs: []string{"machines"}},
		{Layer: "networking", Stage: "pool", Needs: []string{"metallb"}},
		{Layer: "gitops", Stage: "sync", Needs: []string{"machines"}, GatesNeed: []string{"pool"}},
	}}
}

// whole is a create in which everything goes well.
func whole() []event.Event {
	return []event.Event{
		a(0, event.RunStarted, "", text("create blue/proxmox")),
		a(0, event.StagesSelected, "", selection),
		a(0, event.StageUpToDate, "secrets/infisical"),
		a(0, event.StageStarted, "secrets/keys"), a(3, event.StageReady, "secrets/keys"),
		a(3, event.StageStarted, "platform/machines"),
		a(4, event.StepStarted, "platform/machines", stepped("apply", 0)),
		a(5, event.ResourceStarted, "platform/machines", on(`proxmox_virtual_environment_vm.node["cp-01"]`)),
		a(6, event.ResourceStarted, "platform/machines", on(`proxmox_virtual_environment_vm.node["cp-02"]`)),
		a(8, event.Resource, "platform/machines", on(`proxmox_virtual_environment_vm.node["cp-02"]`)),
		a(33, event.StepEnded, "platform/machines", stepped("apply", 0)),
		a(33, event.StageReady, "platform/machines"),
		a(33, event.StageStarted, "networking/metallb"),
		a(33, event.StageStarted, "gitops/sync"),
		a(34, event.StepStarted, "networking/metallb", stepped("gates", 5)),
		a(34, event.StepStarted, "gitops/sync", stepped("apply", 0)),
		a(34, event.GateClosed, "networking/metallb", gated("webhook.objects", "no caBundle")),
		a(34, event.GateOpen, "networking/metallb", gated("workload.controller", "")),
		a(37, event.GateClosed, "networking/metallb", gated("webhook.objects", "connection refused")),
		a(44, event.StepEnded, "gitops/sync", stepped("apply", 0)),
		a(73, event.GateOpen, "networking/metallb", gated("webhook.objects", "")),
		a(73, event.StepEnded, "networking/metallb", stepped("gates", 0)),
		a(73, event.StageReady, "networking/metallb"),
		a(73, event.StageStarted, "networking/pool"), a(83, event.StageReady, "networking/pool"),
		a(83, event.StepStarted, "gitops/sync", stepped("gates", 1)),
		a(93, event.StepEnded, "gitops/sync", stepped("gates", 0)), a(93, event.StageReady, "gitops/sync"),
		a(93, event.RunEnded, "", text(event.RunOK)),
	}
}

// at draws the view of the whole create at a second of it.
func at(second int, u history.Usual, c canvas) string {
	now, t := start.Add(time.Duration(second)*time.Second), history.Fold(nil)
	for _, e := range whole() {
		if !e.Time.After(now) {
			t.Add(e)
		}
	}
	return "\n" + strings.Join(view(t, now, u, c), "\n") + "\n"
}

// usual returns the durations of the whole create, and of the stage that was up to date.
func usual() history.Usual {
	u := history.Learn(history.Fold(whole()))
	u[history.Subject{Command: "create", Stage: "infisical"}] = []time.Duration{time.Second}
	return u
}

func wantView(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got%swant%s", got, want)
	}
}

func TestTheViewNamesWhatEachStageIsAt(t *testing.T) {
	wantView(t, at(17, nil, canvas{width: 100, height: 40, glyphs: unicodeGlyphs}), `
create blue/proxmox  17s  2/6 ready
✓ secrets     1 ready, 1 up to date
› platform    1 at work
    machines  apply 1/18  proxmox_virtual_environment_vm.node["cp-01"] 12s                       14s
· networking  2 waiting for machines
· gitops      1 waiting for machines
`)
	wantView(t, at(72, nil, canvas{width: 100, height: 40, glyphs: unicodeGlyphs}), `
create blue/proxmox  1m12s  3/6 ready
✓ secrets     1 ready, 1 up to date
✓ platform    1 ready
› networking  1 at work, 1 waiting
    metallb  gates 1/5 38s of 10m  webhook.objects: connection refused (35s)                     39s
· gitops      1 waiting
`)
}

func TestTheViewShowsAKnownCauseBeforeAnOlderGate(t *testing.T) {
	run := history.Fold(append(slices.Clone(whole()[:18]),
		a(38, event.GateClosed, "networking/metallb", gated("webhook.pools", "its CA has expired"),
			func(e *event.Event) { e.Cause = true })))
	drawn := strings.Join(view(run, start.Add(72*time.Second), nil,
		canvas{width: 100, height: 40, glyphs: unicodeGlyphs}), "\n")
	if want := "webhook.pools: its CA has expired (34s), and 1 more"; !strings.Contains(drawn, want) {
		t.Errorf("got\n%s\nwant %s", drawn, want)
	}
}

func TestTheViewShowsUsualDurationsAndWhatIsLeft(t *testing.T) {
	u := usual()
	wantView(t, at(50, u, canvas{width: 79, height: 40, glyphs: unicodeGlyphs}), `
create blue/proxmox  50s  3/6 ready  about 45s left
✓ secrets     1 ready, 1 up to date
✓ platform    1 ready
› networking  1 at work, 1 waiting
    metallb  gates 1/5 16s of 10m                              17s, usually 40s
      webhook.objects: connection refused (13s)
· gitops      1 waiting
`)
}

func TestTheViewFitsFortyColumns(t *testing.T) {
	u := history.Learn(history.Fold(whole()))
	wantView(t, at(72, u, canvas{width: 39, height: 40, glyphs: asciiGlyphs}), `
1m12s  3/6 ready  about 25s left
+ secrets     1 ready, 1 up to date
+ platform    1 ready
> networking  1 at work, 1 waiting
  metallb  gates 1/5 38s of 10m     39s
    webhook.objects: connection
    refused (35s)
- gitops      1 waiting
`)
}

func TestNoRowIsWiderThanTheScreen(t *testing.T) {
	u := history.Learn(history.Fold(whole()))
	for width := 10; width <= 130; width += 3 {
		for _, second := range []int{0, 3, 7, 17, 33, 36, 50, 72, 83, 90, 93} {
			c := canvas{width: width, height: 40, glyphs: unicodeGlyphs}
			for row := range strings.Lines(at(second, u, c)) {
				if n := cells(strings.TrimSuffix(row, "\n")); n > width {
					t.Fatalf("second %d: %d columns in %d: %q", second, n, width, row)
				}
			}
		}
	}
}

func TestALowScreenKeepsTheHeadAndTheStagesAtWork(t *testing.T) {
	c := canvas{width: 79, height: 3, glyphs: unicodeGlyphs}
	wantView(t, at(50, nil, c), `
create blue/proxmox  50s  3/6 ready
› networking  1 at work, 1 waiting
    metallb  gates 1/5 16s of 10m                                           17s
`)
	c.height = 1
	wantView(t, at(50, nil, c), "\ncreate blue/proxmox  50s  3/6 ready\n")
}

func TestARunThatHasEndedHasNoView(t *testing.T) {
	var w bytes.Buffer
	l := NewLines(&w, Options{View: true})
	for _, e := range whole() {
		l.Report(e)
	}
	if got := terminal(w.String(), 80); strings.Contains(got, "at work") ||
		!strings.HasSuffix(got, "gitops/sync                ready after 0.0s\n") {
		t.Errorf("got\n%s", got)
	}
}

// terminal returns the text on a terminal of endless height. It knows the sequences that a screen uses.
func terminal(written string, width int) string {
	rows, row, column := [][]rune{nil}, 0, 0
	for i := 0; i < len(written); i++ {
		var n int
		var final byte
		switch {
		case written[i] == '\r':
			column = 0
		case written[i] == '\n':
			if row, column = row+1, 0; row == len(rows) {
				rows = append(rows, nil)
			}
		case strings.HasPrefix(written[i:], "\x1b["):
			if _, err := fmt.Sscanf(written[i:], "\x1b[%d%c", &n, &final); err != nil {
				n, final = 1, written[i+2]
			}
			i += strings.IndexByte(written[i:], final)
			switch final {
			case 'A':
				row = max(0, row-n)
			case 'K':
				rows[row] = rows[row][:min(column, len(rows[row]))]
			}
		default:
			r := []rune(written[i:])[0]
			i += len(string(r)) - 1
			if column == width {
				if row, column = row+1, 0; row == len(rows) {
					rows = append(rows, nil)
				}
			}
			for len(rows[row]) <= column {
				rows[row] = append(rows[row], ' ')
			}
			rows[row][column] = r
			column++
		}
	}
	var out []string
	for _, r := range rows {
		out = append(out, strings.TrimRight(string(r), " "))
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n") + "\n"
}

func TestLinesArePrintedAboveTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		l := NewLines(&w, Options{View: true})
		for _, e := range whole()[:20] {
			e.Time = time.Now()
			l.Report(e)
		}
		l.Say("castle: interrupted")
		time.Sleep(2*time.Second + frame)
		synctest.Wait()
		want := `    0.0s  create blue/proxmox (run )
    0.0s  secrets/keys               ready after 0.0s
    0.0s  platform/machines          ready after 0.0s
castle: interrupted
create blue/proxmox  2s  3/6 ready
✓ secrets     1 ready, 1 up to date
✓ platform    1 ready
› networking  1 at work, 1 waiting
    metallb  gates 1/5 2s of 10m  webhook.objects: connection refused (2s)   2s
· gitops      1 waiting
`
		if got := terminal(w.String(), 80); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		answered := l.Ask("Type yes: ")
		time.Sleep(2*time.Second + frame)
		synctest.Wait()
		if got := terminal(w.String(), 80); !strings.HasSuffix(got, "interrupted\nType yes:\n") {
			t.Errorf("during a question: got\n%s", got)
		}
		answered()
		if got := terminal(w.String(), 80); !strings.Contains(got, "Type yes:\ncreate blue/proxmox  4s") {
			t.Errorf("after a question: got\n%s", got)
		}
		l.Close()
		if got := terminal(w.String(), 80); !strings.HasSuffix(got, "Type yes:\n") {
			t.Errorf("closed: got\n%s", got)
		}
	})
}

func TestANarrowerTerminalLeavesNoRowBehind(t *testing.T) {
	var w bytes.Buffer
	width := 80
	s := &screen{w: &w, size: func() (int, int) { return width, 24 }}
	s.draw([]string{strings.Repeat("x", 79), "short"})
	width = 40
	w.Reset()
	s.draw([]string{"new"})
	if got := w.String(); !strings.HasPrefix(got, "\r"+strings.Repeat("\x1b[A\x1b[K", 3)+"new") {
		t.Errorf("got %q, want the three rows that the two have become cleared", got)
	}
}

func TestOnlyAViewMovesTheCursor(t *testing.T) {
	for _, o := range []Options{{}, {ASCII: true}, {Verbose: true, Timestamps: true}} {
		var w bytes.Buffer
		l := NewLines(&w, o)
		for _, e := range whole() {
			l.Report(e)
		}
		if strings.Contains(w.String(), "\x1b") {
			t.Errorf("%+v: got %q", o, w.String())
		}
	}
}

func TestAViewWithoutColoursHasNone(t *testing.T) {
	var w bytes.Buffer
	l := NewLines(&w, Options{View: true, ASCII: true})
	for _, e := range whole() {
		l.Report(e)
	}
	for part := range strings.SplitSeq(w.String(), "\x1b[") {
		i := strings.IndexFunc(part, func(r rune) bool { return r > '9' || r < '0' })
		if i > 0 && part[i] == 'm' {
			t.Errorf("a colour: %q", part)
		}
	}
	if i := strings.IndexFunc(w.String(), func(r rune) bool { return r > 127 }); i >= 0 {
		t.Errorf("a sign that is no ASCII: %q", w.String()[i:])
	}
}

func TestAReasonKeepsItsEndAndItsDuration(t *testing.T) {
	d := detail{text: "nodes.ready: kubernetes API at 192.168.1.210:6443: connection refused", end: " (35s)"}
	for _, c := range []struct {
		width, most int
		want        string
	}{
		{90, 2, d.text + d.end},
		{50, 2, "nodes.ready: kubernetes API at 192.168.1.210:6443:|connection refused (35s)"},
		{30, 2, "nodes.ready: kubernetes API at|… connection refused (35s)"},
		{30, 3, "nodes.ready: kubernetes API at|192.168.1.210:6443: connection|refused (35s)"},
		{24, 3, "nodes.ready: kubernetes|API at|… refused (35s)"},
		{29, 2, "nodes.ready: kubernetes API|… connection refused (35s)"},
	} {
		if got := strings.Join(d.wrap(c.width, c.most, unicodeGlyphs), "|"); got != c.want {
			t.Errorf("%d columns: got %s, want %s", c.width, got, c.want)
		}
	}
}

func TestWideCharactersCountTwice(t *testing.T) {
	for text, want := range map[string]int{"abc": 3, "日本": 4, "e\u0301": 1, "✓…": 2} {
		if got := cells(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := cut("日本語", 5, unicodeGlyphs); got != "日本…" {
		t.Errorf("got %q", got)
	}
}

func TestTheRanksAreInOrder(t *testing.T) {
	if !slices.IsSortedFunc([]rank{always, stageRow, detailRow, settledRow, waitingRow},
		func(a, b rank) int { return int(a - b) }) {
		t.Error("ranks are out of order")
	}
}

func TestAnAddressThatDoesNotFitKeepsItsKey(t *testing.T) {
	got := at(17, nil, canvas{width: 39, height: 40, glyphs: unicodeGlyphs})
	if !strings.Contains(got, "…") || !strings.Contains(got, `["cp-01"] 12s`) {
		t.Errorf("got%s", got)
	}
}

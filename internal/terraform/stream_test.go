package terraform

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const applied = `{"@level":"info","@message":"Terraform 1.11.4","type":"version","ui":"1.2"}
{"@message":"a.b[\"c\"]: Plan to ` +
	`create","change":{"resource":{"addr":"a.b[\"c\"]","implied_provider":"a","resource_type":"a"},` +
	`"action":"create"},"type":"planned_change"}
{"@message":"a.x: Plan to ` +
	`import","change":{"resource":{"addr":"a.x","implied_provider":"a","resource_type":"a"},"action":` +
	`"import","importing":{"id":"x-1"}},"type":"planned_change"}
{"@message":"a.y: Plan to ` +
	`remove","change":{"resource":{"addr":"a.y","implied_provider":"a","resource_type":"a"},` +
	`"previous_resource":{"addr":"a.was"},"action":"remove"},"type":"planned_change"}
{"@message":"a.z: drift","change":{"resource":{"addr":"a.z"},"action":"update"},"type":"resource_drift"}
{"@message":"a.b[\"c\"]: ` +
	`Creating...","hook":{"resource":{"addr":"a.b[\"c\"]","implied_provider":"a","resource_type":"a"},` +
	`"action":"create"},"type":"apply_start"}
{"@message":"from the future","type":"teleport_start","hook":{"resource":{"addr":7}}}
{"@message":"a.b[\"c\"]: Still creating... [10s ` +
	`elapsed]","hook":{"resource":{"addr":"a.b[\"c\"]","implied_provider":"a","resource_type":"a"},` +
	`"action":"create","elapsed_seconds":10},"type":"apply_progress"}
{"@message":"a.b[\"c\"]: Creation complete after 12s ` +
	`[id=7]","hook":{"resource":{"addr":"a.b[\"c\"]","implied_provider":"a","resource_type":"a"},` +
	`"action":"create","id_key":"id","id_value":"7","elapsed_seconds":12},"type":"apply_complete"}
{"@message":"a.w: Destruction errored after ` +
	`1s","hook":{"resource":{"addr":"a.w","implied_provider":"a","resource_type":"a"},"action":"delete",` +
	`"elapsed_seconds":1},"type":"apply_errored"}
`

func TestStreamReportsChangesAndIgnoresUnknownMessages(t *testing.T) {
	c := Change{Address: `a.b["c"]`, Type: "a", Action: "create"}
	phase := func(c Change, p Phase, seconds float64, id string) Change {
		c.Phase, c.Seconds, c.ID = p, seconds, id
		return c
	}
	want := []Change{
		phase(c, Planned, 0, ""),
		{Address: "a.x", Type: "a", Action: "import", Phase: Planned, ID: "x-1", Imported: true},
		{Address: "a.y", Type: "a", Action: "forget", Phase: Planned, From: "a.was"},
		phase(c, Started, 0, ""), phase(c, Running, 10, ""), phase(c, Done, 12, "7"),
		{Address: "a.w", Type: "a", Action: "delete", Phase: Failed, Seconds: 1},
	}
	var got []Change
	s := running(&Root{OnResource: func(c Change) { got = append(got, c) }})
	feed(t, s, applied)
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !slices.Equal(s.planned, want[:3]) || !s.drifted {
		t.Errorf("planned: %+v, drifted: %t", s.planned, s.drifted)
	}
}

// feed writes a byte at a time, as a slow pipe may deliver it.
func feed(t *testing.T, s *stream, text string) {
	t.Helper()
	for i := range len(text) {
		if n, err := s.Write([]byte{text[i]}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	s.flush()
}

func TestStreamLogsTextAndWholeDiagnostics(t *testing.T) {
	var log strings.Builder
	s := running(&Root{Log: &log})
	feed(t, s, "\x1b[0m\x1b[32mSuccessfully configured\x1b[0m\n"+
		`{"@message":"a.b: Creating...","type":"apply_start"}`+"\n"+
		`{"@message":"Error: `+
		`no","type":"diagnostic","diagnostic":{"severity":"error","summary":"no","detail":"because\nof `+
		`this","address":"a.b","range":{"filename":"main.tf","start":{"line":3}}}}`+"\n"+
		`{"@message":"Warning: `+
		`careful","type":"diagnostic","diagnostic":{"severity":"warning","summary":"careful","detail":""}}`+
		"\n"+
		"no line's end")
	want := "Successfully configured\na.b: Creating...\nError: no\n  a.b, main.tf:3\n  because\n  of " +
		"this\nWarning: careful\nno line's end\n"
	if log.String() != want {
		t.Errorf("got\n%s\nwant\n%s", log.String(), want)
	}
	if len(s.errors) != 1 {
		t.Errorf("errors: %+v", s.errors)
	}
}

func TestStreamReadsLinesOfAnyLength(t *testing.T) {
	var got []Change
	s := running(&Root{OnResource: func(c Change) { got = append(got, c) }})
	id := strings.Repeat("x", 3<<20)
	if _, err := s.Write([]byte(`{"type":"apply_complete","hook":{"resource":{"addr":"a.b"},"action":` +
		`"create","id_value":"` + id + `"}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].ID != id {
		t.Errorf("%d changes", len(got))
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestStreamContinuesWithoutALog(t *testing.T) {
	var got []Change
	s := running(&Root{Log: full{}, OnResource: func(c Change) { got = append(got, c) }})
	feed(t, s, applied)
	if n, err := s.stderr().Write([]byte("text")); n != 4 || err != nil {
		t.Errorf("stderr: %d, %v", n, err)
	}
	if len(got) != 7 {
		t.Errorf("%d changes", len(got))
	}
}

package docs_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/event"
)

// fields are the properties of an object in the schema of events.
type fields struct {
	Properties map[string]any
	Required   []string
}

// eventSchema is what the page of events is held against.
type eventSchema struct {
	Properties map[string]any
	Defs       map[string]fields `json:"$defs"`
	AllOf      []struct {
		If struct {
			Properties struct{ Kind struct{ Const string } }
		}
		Then fields
	}
}

var (
	eventRow  = regexp.MustCompile("^\\| `([a-z_]+)` \\| ([^|]*) \\| ([^|]*)\\| [^|]+ \\|$")
	fieldName = regexp.MustCompile("`([a-z0-9_]+)`")
)

func TestEveryKindOfEventIsDescribedWithItsFields(t *testing.T) {
	schema, page := readEvents(t)
	described := map[string][2]string{}
	for line := range strings.Lines(page) {
		if m := eventRow.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			described[m[1]] = [2]string{names(m[2]), names(m[3])}
		}
	}
	for _, one := range schema.AllOf {
		kind := one.If.Properties.Kind.Const
		own := func(name string) bool { // any event may be one of a cluster in a run over many
			passedOn := name == "wave" || name == "cluster"
			return !slices.Contains([]string{"time", "run", "kind"}, name) &&
				(!passedOn || slices.Contains(one.Then.Required, name))
		}
		var always, sometimes []string
		for _, name := range slices.Sorted(maps.Keys(one.Then.Properties)) {
			switch {
			case !own(name):
			case slices.Contains(one.Then.Required, name):
				always = append(always, name)
			default:
				sometimes = append(sometimes, name)
			}
		}
		want := [2]string{strings.Join(always, " "), strings.Join(sometimes, " ")}
		if got, is := described[kind]; !is || got != want {
			t.Errorf("events.md: %s has the fields %q, the schema says %q", kind, got, want)
		}
		delete(described, kind)
	}
	for kind := range described {
		t.Errorf("events.md describes %s, and there is no such kind", kind)
	}
}

func TestEveryFieldOfAnEventIsDescribed(t *testing.T) {
	schema, page := readEvents(t)
	all := schema.Properties
	for _, one := range schema.Defs {
		maps.Copy(all, one.Properties)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("events.md does not describe the field %s", name)
		}
	}
}

func TestEveryFieldOfAPlanIsDescribed(t *testing.T) {
	var schema struct {
		Properties map[string]any
		Defs       map[string]fields `json:"$defs"`
	}
	text, err := os.ReadFile("plan.schema.json")
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("plans.md")
	if err != nil {
		t.Fatal(err)
	}
	all := schema.Properties
	for _, one := range schema.Defs {
		maps.Copy(all, one.Properties)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.Contains(string(page), "`"+name) {
			t.Errorf("plans.md does not describe the field %s", name)
		}
	}
}

// TestTheExampleOfEventsIsOne reads it as castle reads a journal.
func TestTheExampleOfEventsIsOne(t *testing.T) {
	_, page := readEvents(t)
	_, rest, _ := strings.Cut(page, "```json\n")
	example, _, _ := strings.Cut(rest, "```")
	var last event.Event
	for line := range strings.Lines(example) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		last = event.Event{}
		if err := d.Decode(&last); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if last.Kind != event.RunEnded || last.Ending == nil {
		t.Errorf("the example ends with %+v", last)
	}
}

// readEvents reads the schema of events and the page.
func readEvents(t *testing.T) (s eventSchema, page string) {
	t.Helper()
	text, err := os.ReadFile("events.schema.json")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile("events.md"); err != nil {
		t.Fatal(err)
	}
	return s, string(text)
}

// names are the fields of a cell, sorted.
func names(cell string) string {
	var all []string
	for _, m := range fieldName.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

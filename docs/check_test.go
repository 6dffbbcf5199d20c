package docs_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/ephemeral-castle/castle/internal/check"
)

// line is a rule in a table of check.md: its name, a sentence, its severity.
var line = regexp.MustCompile("(?m)^\\| `(.+?)` \\| (\\S.+\\.) \\| (error|warning) \\|$")

var begun = regexp.MustCompile("(?m)^\\| `")

func TestCheckMdListsEveryRuleAndNoOther(t *testing.T) {
	text, err := os.ReadFile("check.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	found := line.FindAllStringSubmatch(string(text), -1)
	for _, m := range found {
		listed[m[1]] = m[3]
	}
	if lines := begun.FindAll(text, -1); len(lines) != len(found) || len(lines) != len(listed) {
		t.Errorf("%d lines, of which %d have a name, a sentence and a severity, for %d rules", len(lines),
			len(found), len(listed))
	}
	for _, r := range check.Rules() {
		want := "error"
		if r.Warns {
			want = "warning"
		}
		if listed[string(r.Kind)] != want {
			t.Errorf("rule %s is listed as %q, not as %q", r.Kind, listed[string(r.Kind)], want)
		}
		delete(listed, string(r.Kind))
	}
	for name := range listed {
		t.Errorf("there is no such rule: %s", name)
	}
}

package docs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/check"
)

func TestCheckMdListsEveryRuleAndNoOther(t *testing.T) {
	text, err := os.ReadFile("check.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, r := range check.Rules() {
		severity := "error"
		if r.Warns {
			severity = "warning"
		}
		want[fmt.Sprintf("| `%s` | %s | %s |", r.Name, r.About, severity)] = true
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if !want[line] {
			t.Errorf("there is no such rule: %s", line)
		}
		delete(want, line)
	}
	for line := range want {
		t.Errorf("missing: %s", line)
	}
}

package fault

import (
	"os"
	"strings"
	"testing"
)

func TestHelpAndLabMdListEveryFault(t *testing.T) {
	page, err := os.ReadFile("../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range All() {
		if seen[f.Name] || f.Summary == "" {
			t.Errorf("%s is listed twice, or has no summary", f)
		}
		seen[f.Name] = true
		for name, text := range map[string]string{"help": Usage(), "docs/lab.md": string(page)} {
			if !strings.Contains(text, f.String()) {
				t.Errorf("%s does not list %s", name, f)
			}
		}
	}
}

package fault

import (
	"os"
	"strings"
	"testing"
)

func TestHelpAndReadmeTellOfEveryFault(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range All() {
		if seen[f.Name] || f.Summary == "" {
			t.Errorf("%s is there twice, or says nothing of itself", f)
		}
		seen[f.Name] = true
		for name, text := range map[string]string{"help": Usage(), "README.md": string(readme)} {
			if !strings.Contains(text, f.String()) {
				t.Errorf("%s does not tell of %s", name, f)
			}
		}
	}
}

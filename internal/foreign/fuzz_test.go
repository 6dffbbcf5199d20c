package foreign_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ephemeral-castle/castle/internal/foreign"
)

// FuzzText holds that no text keeps a character or command that a terminal or a runner obeys, that its lines
// stay, that it is made visible once, and that JSON stays the same data.
func FuzzText(f *testing.F) {
	for text := range shown {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		visible := foreign.Text(text)
		for _, r := range visible {
			stays := strings.ContainsRune("\n\t", r)
			if !stays && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Fatalf("%q keeps %U: %q", text, r, visible)
			}
		}
		if !utf8.ValidString(visible) {
			t.Fatalf("%q is no text: %q", text, visible)
		}
		for line := range strings.Lines(visible) {
			if strings.HasPrefix(strings.TrimSpace(line), "::") {
				t.Fatalf("%q has a command: %q", text, line)
			}
		}
		for _, command := range []string{"##[", "section_start:", "section_end:"} {
			if strings.Contains(visible, command) {
				t.Fatalf("%q keeps %s: %q", text, command, visible)
			}
		}
		if again := foreign.Text(visible); again != visible {
			t.Fatalf("%q becomes %q, and then %q", text, visible, again)
		}
		if strings.Count(visible, "\n") != strings.Count(text, "\n") {
			t.Fatalf("%q has other lines: %q", text, visible)
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		shown := []byte(foreign.Text(string(encoded)))
		if json.Unmarshal(encoded, &want) != nil || json.Unmarshal(shown, &got) != nil || got != want {
			t.Fatalf("%q is %q in JSON", want, shown)
		}
	})
}

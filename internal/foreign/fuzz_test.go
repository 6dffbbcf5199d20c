package foreign_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ephemeral-castle/castle/internal/foreign"
)

// FuzzText holds that no text reaches a terminal or a runner with a character or a command that they obey, that
// harmless lines stay, and that it makes no difference in which parts a text is written.
func FuzzText(f *testing.F) {
	for text := range shown {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		visible := foreign.Text(text)
		for _, r := range visible {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
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
		var written bytes.Buffer
		w := foreign.NewWriter(&written)
		cut := min(max(size, 0), len(text))
		for _, part := range []string{text[:cut], text[cut:]} {
			if _, err := w.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil || written.String() != visible {
			t.Fatalf("%q, cut at %d: %q, want %q", text, cut, written.String(), visible)
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		if json.Unmarshal(encoded, &want) != nil || json.Unmarshal(foreign.JSON(encoded), &got) != nil || got != want {
			t.Fatalf("%q is %q in JSON", want, foreign.JSON(encoded))
		}
	})
}

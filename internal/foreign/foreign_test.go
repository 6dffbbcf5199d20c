package foreign_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/foreign"
)

// shown maps texts to what castle prints of them.
var shown = map[string]string{
	"plain text, Köln 🏰 ⚠️\n\twith a tab":     "plain text, Köln 🏰 ⚠️\n\twith a tab",
	"A\x1b]52;c;cHduZWQ=\a\x1b[2J":            `A\u001b]52;c;cHduZWQ=\u0007\u001b[2J`,
	"\u009b2J\x7f\x9b2J":                      `\u009b2J\u007f\x9b2J`,
	"progress\rDONE\r\n":                      `progress\u000dDONE\u000d` + "\n",
	"user\u202etxt.exe\u2066a\u2069\u200f":    `user\u202etxt.exe\u2066a\u2069\u200f`,
	"pay\u200bpal \u00ad\u2060\ufeff\u3164":   `pay\u200bpal \u00ad\u2060\ufeff\u3164`,
	"tag \U000e0041":                          `tag \udb40\udc41`,
	"a\u2028b\u2029\u061c":                    `a\u2028b\u2029\u061c`,
	"a\n \u00a0\t::error::b\n::a c::d ::e":    "a\n \u00a0\t\\u003a:error::b\n\\u003a:a c::d ::e",
	"x ##[group]y":                            `x ##\u005bgroup]y`,
	"\x1b[0Ksection_end:1:castle_create_c1\r": `\u001b[0Ksection\u005fend:1:castle_create_c1\u000d`,
	"section_start:1:a section_x":             `section\u005fstart:1:a section_x`,
	"\x00\b\v\f":                              `\u0000\u0008\u000b\u000c`,
}

func TestTextShowsWhatIsHidden(t *testing.T) {
	for text, want := range shown {
		if got := foreign.Text(text); got != want {
			t.Errorf("%q becomes\n%q, want\n%q", text, got, want)
		}
	}
}

func TestAWriterKnowsWhereALineBegins(t *testing.T) {
	var got bytes.Buffer
	w := foreign.NewWriter(&got)
	for _, part := range []string{"Type blue: ", "::a\n", "\t", " ", "::b", "::c\n::d"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("wrote %d of %d bytes: %v", n, len(part), err)
		}
	}
	if want := "Type blue: ::a\n\t \\u003a:b::c\n\\u003a:d"; got.String() != want {
		t.Errorf("wrote %q, want %q", got.String(), want)
	}
}

func TestJSONStaysTheSameData(t *testing.T) {
	for text := range shown {
		text = strings.ToValidUTF8(text, "")
		var written bytes.Buffer
		encoder := json.NewEncoder(foreign.NewWriter(&written))
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(map[string]string{text: text}); err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := json.Unmarshal(written.Bytes(), &back); err != nil || back[text] != text {
			t.Errorf("%q is read as %q from %s: %v", text, back[text], written.String(), err)
		}
	}
}

func TestAWriterIsNoTerminalByItself(t *testing.T) {
	if fd := foreign.NewWriter(&bytes.Buffer{}).Fd(); int(fd) != -1 {
		t.Errorf("a buffer has the descriptor %d", fd)
	}
	if fd := foreign.NewWriter(os.Stderr).Fd(); fd != os.Stderr.Fd() {
		t.Errorf("stderr has the descriptor %d", fd)
	}
}

func TestOneLineSeparatesWhatAUserCanDo(t *testing.T) {
	for text, want := range map[string]string{
		"lost\n  restore it\n  or recreate it": "lost; restore it; or recreate it",
		"lost:\n  restore it":                  "lost: restore it",
		" wrapped\nby  others\t\r\n":           "wrapped by others",
	} {
		if got := foreign.OneLine(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

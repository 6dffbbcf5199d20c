package foreign_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/foreign"
)

// shown maps texts to what castle prints of them.
var shown = map[string]string{
	"plain text, Köln 🏰 ⚠️\n\twith a tab":     "plain text, Köln 🏰 ⚠️\n\twith a tab",
	"A\x1b]52;c;cHduZWQ=\a\x1b[2J":            `A\x1b]52;c;cHduZWQ=\a\x1b[2J`,
	"\u009b2J\x7f\x9b2J":                      `\u009b2J\x7f\x9b2J`,
	"progress\rDONE\r\n":                      `progress\rDONE\r` + "\n",
	"user\u202etxt.exe\u2066a\u2069\u200f":    `user\u202etxt.exe\u2066a\u2069\u200f`,
	"pay\u200bpal \u00ad\u2060\ufeff\u3164":   `pay\u200bpal \u00ad\u2060\ufeff\u3164`,
	"tag \U000e0041":                          `tag \U000e0041`,
	"a\u2028b\u2029\u061c":                    `a\u2028b\u2029\u061c`,
	"a\n \u00a0\t::error::b\n::a c::d ::e":    "a\n \u00a0\t\\::error::b\n\\::a c::d ::e",
	"x ##[group]y":                            `x ##\[group]y`,
	"\x1b[0Ksection_end:1:castle_create_c1\r": `\x1b[0Ksection\_end:1:castle_create_c1\r`,
	"section_start:1:a section_x":             `section\_start:1:a section_x`,
	"\x00\b\v\f":                              `\x00\b\v\f`,
}

func TestTextShowsWhatIsHidden(t *testing.T) {
	for text, want := range shown {
		if got := foreign.Text(text); got != want {
			t.Errorf("%q becomes\n%q, want\n%q", text, got, want)
		}
	}
}

func TestAWriterShowsWhatIsHiddenInParts(t *testing.T) {
	for text, want := range shown {
		for size := 1; size <= len(text); size++ {
			var got bytes.Buffer
			w := foreign.NewWriter(&got)
			for part := range slices.Chunk([]byte(text), size) {
				if n, err := w.Write(part); n != len(part) || err != nil {
					t.Fatalf("wrote %d of %d bytes: %v", n, len(part), err)
				}
			}
			if err := w.Flush(); err != nil || got.String() != want {
				t.Fatalf("%q in parts of %d: %q, %v", text, size, got.String(), err)
			}
		}
	}
}

func TestAWriterHoldsNoQuestionBack(t *testing.T) {
	var got bytes.Buffer
	w := foreign.NewWriter(&got)
	if _, err := w.Write([]byte("Type the name (blue): ")); err != nil || got.Len() != len("Type the name (blue): ") {
		t.Errorf("only %q is written: %v", got.String(), err)
	}
}

func TestJSONStaysTheSameData(t *testing.T) {
	for text := range shown {
		text = strings.ToValidUTF8(text, "")
		var written bytes.Buffer
		w := foreign.NewWriter(&written)
		w.SetJSON()
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(map[string]string{text: text}); err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := json.Unmarshal(written.Bytes(), &back); err != nil || back[text] != text {
			t.Errorf("%q is read as %q from %s: %v", text, back[text], written.String(), err)
		}
		if visible := foreign.Text(written.String()); visible != written.String() {
			t.Errorf("JSON hides something: %q", written.String())
		}
	}
}

func TestValueChangesACopyOfEveryString(t *testing.T) {
	type inner struct{ Texts []string }
	type outer struct {
		Text  string
		Inner *inner
		None  *inner
		At    time.Time
	}
	before := outer{"\x1b", &inner{[]string{"a", "\u202e"}}, nil, time.Now()}
	after := foreign.Value(before)
	if after.Text != `\x1b` || after.Inner.Texts[1] != `\u202e` || after.None != nil || after.At != before.At {
		t.Errorf("became %+v", after)
	}
	if before.Inner.Texts[1] != "\u202e" {
		t.Error("the value itself was changed")
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

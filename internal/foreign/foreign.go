// Package foreign makes the texts of others harmless: those of Terraform, charts, Pods, machines and Git, and
// of whoever else writes to the store. A terminal obeys the control characters in them, those that reorder or
// hide text deceive a reader, and the runners of pipelines obey commands. Text makes them visible before
// castle adds its own colours. Writer does so for whatever else castle prints.
package foreign

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// hidden are the characters that control a terminal, reorder text or have no glyph. Emoji need variation
// selectors, which mislead nobody.
var hidden = []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp,
	unicode.Other_Default_Ignorable_Code_Point}

// commands are what the runners of GitHub and GitLab obey anywhere in a line.
var commands = strings.NewReplacer("##[", `##\u005b`, "section_start:", `section\u005fstart:`,
	"section_end:", `section\u005fend:`)

// Text returns s with everything visible that a terminal or a runner would obey and no reader would see, such
// as \u001b[2J. Line feeds and tabs stay. The escape sequences are those of JSON, whose data does not change.
func Text(s string) string {
	visible, _ := show(s, true)
	return visible
}

// show makes a part of a text visible. blank is whether its line has had nothing but white space so far: then
// GitHub's runner obeys what follows "::".
func show(s string, blank bool) (visible string, stillBlank bool) {
	var out strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		part := s[i : i+size]
		switch {
		case r == '\n':
			blank = true
		case r == utf8.RuneError && size == 1: // never in JSON
			part, blank = fmt.Sprintf(`\x%02x`, s[i]), false
		case r != '\t' && unicode.In(r, hidden...), blank && strings.HasPrefix(s[i:], "::"):
			part, blank = fmt.Sprintf(`\u%04x`, r), false
			if high, low := utf16.EncodeRune(r); r > 0xffff {
				part = fmt.Sprintf(`\u%04x\u%04x`, high, low)
			}
		case !unicode.IsSpace(r):
			blank = false
		}
		out.WriteString(part)
		i += size
	}
	return commands.Replace(out.String()), blank
}

// Writer passes on what castle prints, as Text returns it. No Write ends within a character or a command.
type Writer struct {
	w io.Writer

	mu     sync.Mutex
	inLine bool // the line has more than white space
}

// NewWriter returns a writer that passes text on to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Fd returns the descriptor of the file below, by which castle finds a terminal; else an invalid one.
func (w *Writer) Fd() uintptr {
	if f, is := w.w.(interface{ Fd() uintptr }); is {
		return f.Fd()
	}
	return ^uintptr(0)
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	visible, blank := show(string(p), !w.inLine)
	w.inLine = !blank
	if _, err := io.WriteString(w.w, visible); err != nil {
		return 0, err
	}
	return len(p), nil
}

// indent is what begins a line of castle's errors that says what to do.
var indent = regexp.MustCompile(`([^\s.,:;!?])\s*\n[ \t]+`)

// OneLine returns a text without line breaks. A semicolon comes before what was an indented line: castle's
// errors begin so what a user can do.
func OneLine(s string) string {
	return strings.Join(strings.Fields(indent.ReplaceAllString(s, "$1; ")), " ")
}

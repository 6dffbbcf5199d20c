// Package foreign makes the texts of others harmless: those of Terraform, charts, Pods, machines and Git, and of
// whoever else writes to the store. castle cannot know them, but a terminal obeys the control characters in them,
// a reader is deceived by those that reorder or hide text, and the runners of pipelines obey commands.
//
// Text and Value make all of these visible before castle adds its own colours. Writer does so for all that
// castle prints, so that no command has to think of it.
package foreign

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// commands are what the runners of GitHub and GitLab obey: the last one at the start of a line, the others
// anywhere. A backslash in them ends that.
var commands = []string{"##[", "section_start:", "section_end:", "::"}

var (
	inText = strings.NewReplacer("##[", `##\[`, "section_start:", `section\_start:`,
		"section_end:", `section\_end:`)
	inJSON = strings.NewReplacer("##[", `##\u005b`, "section_start:", `section\u005fstart:`,
		"section_end:", `section\u005fend:`)
)

// hidden are the characters that control a terminal, reorder text or have no glyph. Emoji need variation
// selectors, which mislead nobody.
var hidden = []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp,
	unicode.Other_Default_Ignorable_Code_Point}

// Text returns s, in which line feeds and tabs stay, with everything visible that a terminal or a runner would
// obey and no reader would see: \x1b[2J, \u202e, \xff, \::error::. Text in which nothing is hidden stays as it is.
func Text(s string) string {
	visible, _ := show(s, true, false)
	return visible
}

// JSON returns encoded JSON with the same characters escaped. It is the same data.
func JSON(encoded []byte) []byte {
	visible, _ := show(string(encoded), true, true)
	return []byte(visible)
}

// show makes a part of a text visible. blank is whether its line has had nothing but white space so far.
func show(s string, blank, json bool) (visible string, stillBlank bool) {
	var out strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		part := s[i : i+size]
		switch {
		case r == '\n':
			blank = true
		case r == utf8.RuneError && size == 1, r != '\t' && unicode.In(r, hidden...):
			part, blank = escape(r, part, json), false
		case blank && !json && strings.HasPrefix(s[i:], "::"):
			part, blank = `\:`, false
		case !unicode.IsSpace(r):
			blank = false
		}
		out.WriteString(part)
		i += size
	}
	if json {
		return inJSON.Replace(out.String()), blank
	}
	return inText.Replace(out.String()), blank
}

// escape returns the escape sequence of a character, or of a byte that is part of none.
func escape(r rune, encoded string, json bool) string {
	switch high, low := utf16.EncodeRune(r); {
	case json && r > 0xffff:
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	case json:
		return fmt.Sprintf(`\u%04x`, r)
	case r == utf8.RuneError:
		return fmt.Sprintf(`\x%02x`, encoded[0])
	}
	return strings.Trim(strconv.QuoteRuneToASCII(r), "'")
}

// Value returns a copy of v in which Text has changed every string, except in maps and unexported fields.
func Value[T any](v T) T {
	change(reflect.ValueOf(&v).Elem())
	return v
}

func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(Text(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			old := v.Elem()
			v.Set(reflect.New(old.Type()))
			v.Elem().Set(old)
			change(v.Elem())
		}
	case reflect.Slice:
		if !v.IsNil() {
			old := v.Len()
			v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, old), v))
			for i := range old {
				change(v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				change(field)
			}
		}
	}
}

// Writer passes on what castle prints, as Text returns it. It holds back only what may be the beginning of a
// character or of a command, so that a question without a line feed appears at once.
type Writer struct {
	w io.Writer

	mu    sync.Mutex
	json  bool
	held  string
	blank bool // the line has had nothing but white space so far
}

// NewWriter returns a writer that passes text on to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, blank: true} }

// SetJSON has the writer treat what follows as JSON.
func (w *Writer) SetJSON() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.json = true
}

// Fd returns the descriptor of the file below, by which castle finds a terminal and its size; else an invalid
// one.
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
	w.held += string(p)
	if err := w.pass(len(w.held) - unfinished(w.held)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what the writer holds.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pass(len(w.held))
}

func (w *Writer) pass(n int) error {
	visible, blank := show(w.held[:n], w.blank, w.json)
	w.held, w.blank = w.held[n:], blank
	if visible == "" {
		return nil
	}
	_, err := io.WriteString(w.w, visible)
	return err
}

// unfinished returns how many bytes at the end of s may be the beginning of a character or of a command.
func unfinished(s string) int {
	whole := func(c string) bool { return strings.HasSuffix(s, c) }
	if slices.ContainsFunc(commands, whole) { // the end of one is the beginning of another one
		return 0
	}
	for n := min(len(s), len("section_start")); n > 0; n-- {
		end := s[len(s)-n:]
		begins := func(c string) bool { return len(c) > n && strings.HasPrefix(c, end) }
		if !utf8.FullRuneInString(end) || slices.ContainsFunc(commands, begins) {
			return n
		}
	}
	return 0
}

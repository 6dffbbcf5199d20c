package report

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode"
)

// Guard passes lines on to a writer that GitHub's runner reads, and changes those that it would obey as
// commands: texts of Terraform, of machines and of charts are not castle's. A line that begins with "::"
// after blanks, and "##[" anywhere, gets a backslash.
type Guard struct {
	w    io.Writer
	json bool

	mu   sync.Mutex
	line []byte // that has no end yet
}

// Guarded returns a writer that passes text on to w as it is, unless the system reads commands there. In
// JSON, the texts keep their meaning.
func (p Pipeline) Guarded(w io.Writer, json bool) io.Writer {
	if p != GitHub {
		return w
	}
	return &Guard{w: w, json: json}
}

// Write passes on the lines that are complete.
func (g *Guard) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.line = append(g.line, p...)
	end := bytes.LastIndexAny(g.line, "\r\n") + 1 // the runner ends a line at either
	complete := string(g.line[:end])
	g.line = g.line[end:]
	if err := g.write(complete); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on a line without its end.
func (g *Guard) Flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	rest := string(g.line)
	g.line = nil
	return g.write(rest)
}

func (g *Guard) write(text string) error {
	if text == "" {
		return nil
	}
	var guarded strings.Builder
	for text != "" {
		end := strings.IndexAny(text, "\r\n") + 1
		if end == 0 {
			end = len(text)
		}
		guarded.WriteString(g.harmless(text[:end]))
		text = text[end:]
	}
	_, err := io.WriteString(g.w, guarded.String())
	return err
}

// harmless returns a line that is no command.
func (g *Guard) harmless(line string) string {
	if g.json { // no line of JSON begins with a colon, and the bracket is in a string
		return strings.ReplaceAll(line, "##[", `##\u005b`)
	}
	text := strings.TrimLeftFunc(line, unicode.IsSpace)
	if strings.HasPrefix(text, "::") {
		line = line[:len(line)-len(text)] + `\` + text
	}
	return strings.ReplaceAll(line, "##[", `##\[`)
}

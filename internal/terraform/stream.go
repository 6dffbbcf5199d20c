package terraform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// stream reads the output of one command: JSON lines, or text where a command has no
// JSON. It keeps the planned changes and the errors, reports changes and writes the
// log. Its writers never fail: Terraform would hang at a pipe that nobody reads.
type stream struct {
	log        io.Writer
	onResource func(Change)
	onError    func(Diagnostic)

	mu      sync.Mutex
	rest    []byte // of an unfinished line
	planned []Change
	errors  []Diagnostic
	text    bytes.Buffer // all output that is not JSON
}

// message holds the parts of a line that castle reads. Unknown types and fields are
// ignored: each version of Terraform adds some.
type message struct {
	Text       string      `json:"@message"`
	Type       string      `json:"type"`
	Change     *subject    `json:"change"`
	Hook       *subject    `json:"hook"`
	Diagnostic *diagnostic `json:"diagnostic"`
}

type subject struct {
	Resource struct {
		Address string `json:"addr"`
		Type    string `json:"resource_type"`
	} `json:"resource"`
	Action    string  `json:"action"`
	Reason    string  `json:"reason"`
	IDValue   string  `json:"id_value"`
	Seconds   float64 `json:"elapsed_seconds"`
	Importing *struct {
		ID string `json:"id"`
	} `json:"importing"`
}

// Write reads a piece of the standard output.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, p...)
	for {
		line, rest, whole := bytes.Cut(s.rest, []byte{'\n'})
		if !whole {
			return len(p), nil
		}
		s.line(line)
		s.rest = rest
	}
}

// flush reads a last line without an end.
func (s *stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) > 0 {
		s.line(s.rest)
		s.rest = nil
	}
}

func (s *stream) line(line []byte) {
	var m message
	if !bytes.HasPrefix(line, []byte{'{'}) || json.Unmarshal(line, &m) != nil || m.Type == "" {
		s.plain(append(line, '\n'))
		return
	}
	if m.Type == "diagnostic" && m.Diagnostic != nil {
		d := m.Diagnostic.exported()
		s.write(d.long(m.Diagnostic.Severity))
		if m.Diagnostic.Severity == "error" {
			s.errors = append(s.errors, d)
			if s.onError != nil {
				s.onError(d)
			}
		}
		return
	}
	s.write(m.Text + "\n")
	c, ok := m.changed()
	if !ok {
		return
	}
	if c.Phase == Planned {
		s.planned = append(s.planned, c)
	}
	if s.onResource != nil {
		s.onResource(c)
	}
}

// stderr is the writer for the standard error, which is always text.
func (s *stream) stderr() io.Writer { return stderr{s} }

type stderr struct{ s *stream }

func (e stderr) Write(p []byte) (int, error) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.s.plain(p)
	return len(p), nil
}

// Terraform colours a few lines of init even with -no-color.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

func (s *stream) plain(p []byte) {
	p = colours.ReplaceAll(p, nil)
	s.text.Write(p)
	s.write(string(p))
}

func (s *stream) write(text string) {
	if s.log != nil {
		_, _ = io.WriteString(s.log, text) // a full disk must not stop Terraform
	}
}

// diagnostic is one of Terraform's, as in its JSON.
type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
	Range    *struct {
		File  string `json:"filename"`
		Start struct {
			Line int `json:"line"`
		} `json:"start"`
	} `json:"range"`
}

func (d *diagnostic) exported() Diagnostic {
	out := Diagnostic{Summary: d.Summary, Detail: d.Detail, Address: d.Address}
	if d.Range != nil {
		out.File, out.Line = d.Range.File, d.Range.Start.Line
	}
	return out
}

// long is the whole diagnostic, for the log.
func (d Diagnostic) long(severity string) string {
	var b strings.Builder
	first := min(1, len(severity))
	fmt.Fprintf(&b, "%s: %s\n", strings.ToUpper(severity[:first])+severity[first:], d.Summary)
	var where []string
	if d.Address != "" {
		where = append(where, d.Address)
	}
	if d.File != "" {
		where = append(where, d.File+":"+strconv.Itoa(d.Line))
	}
	if len(where) > 0 {
		fmt.Fprintf(&b, "  %s\n", strings.Join(where, ", "))
	}
	for line := range strings.Lines(d.Detail) {
		fmt.Fprintf(&b, "  %s\n", strings.TrimRight(line, "\n"))
	}
	return b.String()
}

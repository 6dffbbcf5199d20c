package terraform

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"
	tfjson "github.com/hashicorp/terraform-json"
)

// stream reads the output of one command: JSON lines, or text where a command has no
// JSON. It keeps the planned changes and the errors, reports changes and writes the
// log. Its writers never fail: Terraform would hang at a full pipe.
type stream struct {
	root    *Root                  // gets all that is reported
	running *tfexec.ReattachOption // the providers that run already

	mu      sync.Mutex
	rest    []byte // of an unfinished line
	planned []Change
	drifted bool // a resource differs from its last apply
	errors  []Diagnostic
	text    bytes.Buffer // all output that is not JSON
}

// message holds the parts of a line that castle reads. Unknown types and fields are
// ignored: each version of Terraform adds some.
type message struct {
	Text         string `json:"@message"`
	Type         string
	Change, Hook *subject
	Diagnostic   *Diagnostic
}

type subject struct {
	Resource struct {
		Address string `json:"addr"`
		Type    string `json:"resource_type"`
	}
	Previous struct {
		Address string `json:"addr"`
	} `json:"previous_resource"`
	Action, Reason string
	ID             string  `json:"id_value"`
	Seconds        float64 `json:"elapsed_seconds"`
	Importing      *struct{ ID string }
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
	if d := m.Diagnostic; m.Type == "diagnostic" && d != nil {
		d.Summary, d.Detail = s.root.hide(d.Summary), s.root.hide(d.Detail)
		s.write(d.long())
		if d.Severity == tfjson.DiagnosticSeverityError {
			s.errors = append(s.errors, *d)
			if s.root.OnError != nil {
				s.root.OnError(*d)
			}
		} else if s.root.OnWarning != nil {
			s.root.OnWarning(*d)
		}
		return
	}
	s.write(m.Text + "\n")
	s.drifted = s.drifted || m.Type == "resource_drift"
	c, ok := m.changed()
	if !ok {
		return
	}
	if c.Phase == Planned {
		s.planned = append(s.planned, c)
	}
	s.root.operation.update(c)
	if s.root.OnResource != nil {
		s.root.OnResource(c)
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

// colours matches the colours in a few lines of init, which Terraform prints even with -no-color.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

func (s *stream) plain(p []byte) {
	p = colours.ReplaceAll(p, nil)
	s.text.Write(p)
	s.write(string(p))
}

func (s *stream) write(text string) {
	if s.root.Log != nil {
		_, _ = io.WriteString(s.root.Log, text) // a full disk must not stop Terraform
	}
}

// long is the whole diagnostic, for the log.
func (d Diagnostic) long() string {
	var b strings.Builder
	severity := string(d.Severity)
	first := min(1, len(severity))
	fmt.Fprintf(&b, "%s: %s\n", strings.ToUpper(severity[:first])+severity[first:], d.Summary)
	where := d.Address
	if r := d.Range; r != nil {
		where = strings.TrimPrefix(fmt.Sprintf("%s, %s:%d", where, r.Filename, r.Start.Line), ", ")
	}
	if where != "" {
		fmt.Fprintf(&b, "  %s\n", where)
	}
	for line := range strings.Lines(d.Detail) {
		fmt.Fprintf(&b, "  %s\n", strings.TrimRight(line, "\n"))
	}
	return b.String()
}

// Change is one planned or running change of a resource instance.
type Change struct {
	Address string // module.a.helm_release.b["c"]
	Type    string // helm_release
	Action  string // create, update, delete, replace, read, import, move or forget
	Reason  string // of a replace or delete, in Terraform's words: tainted, cannot_update …
	Phase   Phase
	ID      string  // the object's id, if Terraform has reported it
	Seconds float64 // since Started, in whole seconds as Terraform counts

	From     string // the address before a move, which may come with another action
	Imported bool   // an import comes first, which may come with another action
}

// KeyOf returns the key of a resource instance with for_each, and whether it has one.
func KeyOf(address string) (string, bool) {
	_, key, keyed := strings.Cut(address, `["`)
	return strings.TrimSuffix(key, `"]`), keyed
}

// Phase is how far a change has come.
type Phase string

// The phases of a change. A planned replacement is applied as a delete and a create.
const (
	Planned Phase = "planned"
	Started Phase = "started"
	Running Phase = "running" // repeated every ten seconds
	Done    Phase = "done"
	Failed  Phase = "failed"
)

// phases are the phases by the type of a message in Terraform's JSON stream.
var phases = map[string]Phase{
	"planned_change": Planned, "apply_start": Started, "apply_progress": Running,
	"apply_complete": Done, "apply_errored": Failed,
}

// changed makes a Change of a message, if it is about one.
func (m *message) changed() (Change, bool) {
	on := m.Hook
	if m.Type == "planned_change" {
		on = m.Change
	}
	if on == nil || on.Action == "noop" || phases[m.Type] == "" {
		return Change{}, false
	}
	c := Change{
		Address: on.Resource.Address, Type: on.Resource.Type, Action: on.Action,
		Reason: on.Reason, Phase: phases[m.Type], Seconds: on.Seconds,
	}
	if c.Action == "remove" { // from the state; it is not deleted
		c.Action = "forget"
	}
	c.ID, c.From = on.ID, on.Previous.Address
	if c.Imported = on.Importing != nil; c.Imported {
		c.ID = cmp.Or(on.Importing.ID, on.ID)
	}
	return c, true
}

// Operation is a running Terraform command, or a resource that it is changing.
type Operation struct {
	Command string // init, plan, apply, import …
	Address string // of the resource; empty: the command
	Action  string // create, update, delete …
	Since   time.Time
}

// Operations returns the resources that the running command is changing, the oldest first, or the command if
// there are none. It may be called beside any other method.
func (r *Root) Operations() []Operation {
	r.operation.mu.Lock()
	defer r.operation.mu.Unlock()
	now := r.operation.now
	if len(now) > 1 {
		now = now[1:]
	}
	return slices.Clone(now)
}

// operation follows a root's commands, one after the other.
type operation struct {
	mu  sync.Mutex
	now []Operation // the command, then the resources
}

// begin records a command until the returned function is called.
func (o *operation) begin(command string) (end func()) {
	set := func(now []Operation) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.now = now
	}
	set([]Operation{{Command: command, Since: time.Now()}})
	return func() { set(nil) }
}

func (o *operation) update(c Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch c.Phase {
	case Started:
		o.now = append(o.now, Operation{o.now[0].Command, c.Address, c.Action, time.Now()})
	case Done, Failed:
		o.now = slices.DeleteFunc(o.now, func(r Operation) bool {
			return r.Address == c.Address && r.Action == c.Action
		})
	}
}

package terraform

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

var (
	// ErrNoSuchObject reports that the object of an import does not exist.
	ErrNoSuchObject = errors.New("no such object")
	// ErrNotConfigured reports that the configuration has no resource at the address.
	ErrNotConfigured = errors.New("not in the configuration")
	// ErrStateLocked reports that another Terraform is using the state.
	ErrStateLocked = errors.New("state locked")
	// ErrStalePlan reports that the state has changed since the plan was made.
	ErrStalePlan    = errors.New("plan stale")
	errWantsUpgrade = errors.New("init needs -upgrade")
)

// Diagnostic is one error or warning of Terraform's. A provider may have put secrets into its texts:
// Root.Hide masks those that castle knows. A file in Range is relative to the root module.
type Diagnostic tfjson.Diagnostic

func (d Diagnostic) text() string { return d.Summary + "\n" + d.Detail }

func (d Diagnostic) consequence() bool { return consequence().MatchString(d.Summary) }

// IsForUsers reports whether a warning is for the user of a stage: not for the author of its module, and not
// about -target, which is castle's own.
func (d Diagnostic) IsForUsers() bool {
	return !deprecated().MatchString(d.text()) && !targeting.MatchString(d.Summary)
}

var targeting = regexp.MustCompile(`^(Resource targeting is in effect|Applied changes may be incomplete)$`)

// AlreadyExists reports whether the object of a create existed before.
func (d Diagnostic) AlreadyExists() bool { return alreadyExists().MatchString(d.text()) }

// noSuchObject reports whether the object of an import does not exist. A provider's
// text counts only if it can mean nothing else.
func (d Diagnostic) noSuchObject() bool {
	text := d.text()
	return d.Summary == summaryNoSuchObject ||
		notFound().MatchString(text) && !notFoundElse().MatchString(text)
}

// line is the diagnostic in one line.
func (d Diagnostic) line() string {
	summary, _, _ := strings.Cut(d.Summary, "\n\n") // that of a failed lock has its advice in it
	text := oneLine(summary)
	if d.Address != "" {
		text = d.Address + ": " + text
	}
	if detail := oneLine(d.gist()); detail != "" {
		text += ": " + detail
	}
	if d.Range != nil {
		text += fmt.Sprintf(" (%s:%d)", d.Range.Filename, d.Range.Start.Line)
	}
	return text
}

// gist is the detail's first paragraph, with the cause; the others give advice. One that ends in a colon
// continues in the next. If a provider passes on the text of its service, that paragraph is the first.
func (d Diagnostic) gist() string {
	var gist string
	paragraphs := strings.Split(strings.TrimSpace(d.Detail), "\n\n")
	if at := slices.IndexFunc(paragraphs, serviceText().MatchString); at > 0 {
		paragraphs = paragraphs[at:]
	}
	for _, paragraph := range paragraphs {
		gist += paragraph + "\n"
		if !strings.HasSuffix(paragraph, ":") {
			break
		}
	}
	return gist
}

const (
	maxLine = 400 // characters of a text in one line
	endLine = 120 // of these for its end, where Go's errors name the cause
)

func oneLine(text string) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > maxLine {
		return string(line[:maxLine-endLine]) + " … " + string(line[len(line)-endLine:])
	}
	return string(line)
}

// Error is a Terraform command that failed. Its text is the first root cause in
// one line; the log has all of it.
type Error struct {
	Command      string // init, plan, apply …
	Diagnostics  []Diagnostic
	ErroredState string // path of errored.tfstate, if Terraform could not write the state

	lastLine string // of the output, if there are no diagnostics
}

func (e *Error) Error() string {
	text := "terraform " + e.Command + ": " + e.lastLine
	if len(e.Diagnostics) > 0 {
		root := slices.IndexFunc(e.Diagnostics, func(d Diagnostic) bool { return !d.consequence() })
		text = e.Diagnostics[max(root, 0)].line()
		if more := len(e.Diagnostics) - 1; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
	}
	if e.ErroredState != "" {
		text += "; the state could not be written and is in " + e.ErroredState
	}
	return text
}

// Is reports whether one of the diagnostics is the target.
func (e *Error) Is(target error) bool {
	return slices.ContainsFunc(e.Diagnostics, func(d Diagnostic) bool {
		switch target {
		case ErrStateLocked:
			return d.Summary == summaryStateLocked
		case ErrStalePlan:
			return d.Summary == summaryStalePlan
		case ErrNotConfigured:
			return e.Command == "import" && notConfigured().MatchString(d.text())
		case ErrNoSuchObject:
			return e.Command == "import" && d.noSuchObject()
		case errWantsUpgrade:
			return wantsUpgrade().MatchString(d.Detail)
		}
		return false
	})
}

// failure makes the error of a command that failed: terraform-exec's own if Terraform has written nothing.
func (s *stream) failure(command string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &Error{Command: command, Diagnostics: s.errors}
	if errored := s.root.workdir().erroredPath(); exists(errored) {
		e.ErroredState = errored
	}
	text := s.root.hide(s.text.String())
	if len(e.Diagnostics) == 0 {
		e.Diagnostics = fromText(text)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if e.lastLine = oneLine(lines[len(lines)-1]); e.lastLine == "" {
		e.lastLine = oneLine(s.root.hide(err.Error()))
	}
	return e
}

// The parts of an error in text.
var (
	place = regexp.MustCompile(`^  on (\S+) line (\d+)`)
	about = regexp.MustCompile(`^  with (\S+),$`)
	// The source, which may contain all inputs. Line numbers below ten are indented like
	// the notes on values below them.
	quoted = regexp.MustCompile(`^ +[0-9]+:( |$)`)
)

// fromText reads the errors of a command without JSON, such as import:
//
//	Error: Summary
//
//	  with terraform_data.a,
//	  on main.tf line 3, in resource "terraform_data" "a":
//	   3: resource "terraform_data" "a" {
//
//	Detail
func fromText(text string) []Diagnostic {
	var all []Diagnostic
	for _, block := range strings.Split("\n"+text, "\nError: ")[1:] {
		summary, rest, _ := strings.Cut(block, "\n")
		d := Diagnostic{Summary: summary}
		var detail []string
		for line := range strings.Lines(rest) {
			line = strings.TrimRight(line, "\n")
			if m := about.FindStringSubmatch(line); m != nil {
				d.Address = m[1]
			} else if m := place.FindStringSubmatch(line); m != nil {
				d.Range = &tfjson.Range{Filename: m[1]}
				d.Range.Start.Line, _ = strconv.Atoi(m[2]) // digits, by the pattern
			} else if !strings.HasPrefix(line, "   ") && !quoted.MatchString(line) {
				detail = append(detail, line)
			}
		}
		d.Detail = strings.TrimSpace(strings.Join(detail, "\n"))
		all = append(all, d)
	}
	return all
}

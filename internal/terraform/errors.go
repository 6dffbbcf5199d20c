package terraform

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoSuchObject says that there is nothing to import.
var ErrNoSuchObject = errors.New("no such object")

// ErrNotConfigured says that the configuration has no such resource to import to.
var ErrNotConfigured = errors.New("not in the configuration")

// ErrStateLocked says that another Terraform is using the state.
var ErrStateLocked = errors.New("state locked")

// ErrStalePlan says that the state has changed since the plan was made.
var ErrStalePlan = errors.New("plan stale")

// Diagnostic is one error that Terraform reported. Its texts may hold secrets
// that a provider has put there; whoever shows them masks them.
type Diagnostic struct {
	Summary, Detail string
	Address         string // of the resource, if it is about one
	File            string // relative to the root module, if it is about a place in it
	Line            int
}

func (d Diagnostic) where() string {
	var parts []string
	if d.Address != "" {
		parts = append(parts, d.Address)
	}
	if d.File != "" {
		parts = append(parts, d.File+":"+strconv.Itoa(d.Line))
	}
	return strings.Join(parts, ", ")
}

// short is the diagnostic in one line.
func (d Diagnostic) short() string {
	text := oneLine(d.Summary)
	if d.Address != "" {
		text = d.Address + ": " + text
	}
	if detail := oneLine(d.gist()); detail != "" {
		text += ": " + detail
	}
	if d.File != "" {
		text += fmt.Sprintf(" (%s:%d)", d.File, d.Line)
	}
	return text
}

// gist is the detail's first paragraph, which says what happened; the others give
// advice. One that ends in a colon goes on in the next. Where a provider only
// passes on what its service said, the first one is advice, and the service has
// a paragraph of its own.
func (d Diagnostic) gist() string {
	var gist string
	paragraphs := strings.Split(strings.TrimSpace(d.Detail), "\n\n")
	if passed := slices.IndexFunc(paragraphs, passedOn.MatchString); passed > 0 {
		paragraphs = paragraphs[passed:]
	}
	for _, paragraph := range paragraphs {
		gist += paragraph + "\n"
		if !strings.HasSuffix(paragraph, ":") {
			break
		}
	}
	return gist
}

// passedOn is how a provider of the plugin framework introduces somebody else's words.
var passedOn = regexp.MustCompile(`^[A-Z][A-Za-z ]* Error: `)

const longest = 400 // characters of a text that is to be one line

func oneLine(text string) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > longest {
		return string(line[:longest]) + " …"
	}
	return string(line)
}

// Error is a Terraform command that failed. Its text is the first root cause in
// one line; the log has all of it.
type Error struct {
	Command     string // init, plan, apply …
	Diagnostics []Diagnostic
	Rescued     string // errored.tfstate, if Terraform could not write the state

	last string // what it said last, if there are no diagnostics
}

func (e *Error) Error() string {
	text := "terraform " + e.Command + ": " + e.last
	if len(e.Diagnostics) > 0 {
		text = e.cause().short()
		if more := len(e.Diagnostics) - 1; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
	}
	if e.Rescued != "" {
		text += "; the state could not be written and is in " + e.Rescued
	}
	return text
}

// cause returns the first diagnostic that does not follow from another one.
func (e *Error) cause() Diagnostic {
	for _, d := range e.Diagnostics {
		if !d.follows() {
			return d
		}
	}
	return e.Diagnostics[0]
}

// follows tells whether a diagnostic only says that another one ended the command.
func (d Diagnostic) follows() bool {
	switch strings.ToLower(d.Summary) {
	case "execution halted", "operation canceled", "operation cancelled":
		return true
	}
	return false
}

// Is tells errors.Is which of this package's errors it is.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrStateLocked:
		return e.has("Error acquiring the state lock")
	case ErrStalePlan:
		return e.has("Saved plan is stale")
	case ErrNotConfigured:
		return e.Command == "import" && slices.ContainsFunc(e.Diagnostics, Diagnostic.notConfigured)
	case ErrNoSuchObject:
		return e.Command == "import" && slices.ContainsFunc(e.Diagnostics, Diagnostic.notThere)
	}
	return false
}

func (e *Error) has(summary string) bool {
	return slices.ContainsFunc(e.Diagnostics, func(d Diagnostic) bool { return d.Summary == summary })
}

var (
	notFound = regexp.MustCompile(`(?i)non-existent remote object|\b404\b|\bnot found\b|does not exist|could not be found`)
	// What says the same of something else: the configuration, a provider, a host
	// that is another service, whoever asks, what the object would be in.
	notFoundElse = regexp.MustCompile(`(?i)in the configuration|provider|plugin|dial tcp|lookup |executable|no such file|` +
		`api client|authenticat|credential|permission|(project|workspace|environment|folder)\b.*\bnot (be )?found`)
)

// notThere tells whether a diagnostic of an import says that the object does not
// exist. Terraform's own is certain. Providers have their own words, which count
// only if nothing else could be meant.
func (d Diagnostic) notThere() bool {
	if d.Summary == "Cannot import non-existent remote object" {
		return true
	}
	text := d.Summary + "\n" + d.Detail
	return notFound.MatchString(text) && !notFoundElse.MatchString(text)
}

var unconfigured = regexp.MustCompile(`(?i)does not exist in (the )?configuration|import to non-existent resource address|configuration for import target does not exist`)

func (d Diagnostic) notConfigured() bool {
	return unconfigured.MatchString(d.Summary + "\n" + d.Detail)
}

var taken = regexp.MustCompile(`(?i)already exist|cannot re-use a name|already (in use|taken)`)

// Taken reports whether the error says that what was to be made existed before.
func (d Diagnostic) Taken() bool { return taken.MatchString(d.Summary + "\n" + d.Detail) }

// failure makes the error of a command that failed. err is terraform-exec's; it
// is looked at only if Terraform itself has said nothing.
func (s *stream) failure(command string, err error, rescued string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &Error{Command: command, Diagnostics: s.errors, Rescued: rescued}
	if len(e.Diagnostics) == 0 {
		e.Diagnostics = fromText(s.text.String())
	}
	if e.last = lastLine(s.text.String()); e.last == "" {
		e.last = oneLine(err.Error())
	}
	return e
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return oneLine(lines[len(lines)-1])
}

var (
	place = regexp.MustCompile(`^  on (\S+) line (\d+)`)
	about = regexp.MustCompile(`^  with (\S+),$`)
	// The source, which may hold every value of a file of inputs; less than ten
	// lines are indented like the notes on values below them.
	quoted = regexp.MustCompile(`^ +[0-9]+:( |$)`)
)

// fromText reads the errors of a command that has no JSON, such as import:
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
				d.File = m[1]
				d.Line, _ = strconv.Atoi(m[2]) // digits, by the pattern
			} else if !strings.HasPrefix(line, "   ") && !quoted.MatchString(line) {
				detail = append(detail, line)
			}
		}
		d.Detail = strings.TrimSpace(strings.Join(detail, "\n"))
		all = append(all, d)
	}
	return all
}

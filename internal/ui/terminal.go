package ui

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/ephemeral-castle/castle/internal/event"
)

// painter colours text on a terminal and leaves it alone elsewhere.
type painter bool

func (p painter) colour(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p painter) red(s string) string    { return p.colour("31", s) }
func (p painter) green(s string) string  { return p.colour("32", s) }
func (p painter) yellow(s string) string { return p.colour("33", s) }
func (p painter) dim(s string) string    { return p.colour("2", s) }

// live is the last line of a terminal: the steps in progress.
type live struct {
	w       io.Writer
	running map[string]string // stage: its step
	drawn   bool
}

func (l *live) update(e event.Event) {
	switch e.Kind {
	case event.StepStarted:
		l.running[e.Stage] = e.Step
	case event.Retry:
		l.running[e.Stage] = "waiting to retry"
	case event.StepEnded, event.StageReady, event.StageUpToDate, event.StageGone, event.StageFailed,
		event.StageStopped, event.StageSkipped:
		delete(l.running, e.Stage)
	case event.RunEnded:
		clear(l.running)
	}
}

func (l *live) clear() {
	if l.drawn {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.drawn = false
	}
}

func (l *live) draw() {
	if len(l.running) == 0 {
		return
	}
	var parts []string
	for _, stage := range slices.Sorted(maps.Keys(l.running)) {
		parts = append(parts, stage+" "+l.running[stage])
	}
	// A line that wraps cannot be cleared as one.
	text := []rune("  … " + strings.Join(parts, " · "))
	if most := Columns(l.w, 80) - 1; len(text) > most {
		text = append(text[:most-1], '…')
	}
	fmt.Fprintf(l.w, "\x1b[2m%s\x1b[0m", string(text))
	l.drawn = true
}

// Columns returns a terminal's width, or unknown if w is not a terminal.
func Columns(w io.Writer, unknown int) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 2 {
			return width
		}
	}
	return unknown
}

package ui

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/ephemeral-castle/castle/internal/history"
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
func (p painter) bold(s string) string   { return p.colour("1", s) }

// screen draws a view below all lines that were printed, and redraws it in place. The cursor rests below the
// view, at the start of a line, so that the view and the line of the cursor fit the terminal's height.
type screen struct {
	w     io.Writer
	size  func() (width, height int)
	drawn []string      // the rows on the terminal
	width int           // of the terminal, when they were drawn
	echo  *unix.Termios // the terminal's settings before a view turned off the echo; nil without one
}

// canvas returns the room for a view. The last column stays free: some terminals wrap after it.
func (s *screen) canvas(g glyphs, p painter) canvas {
	width, height := s.size()
	return canvas{width: max(width-1, 10), height: max(height-1, 1), glyphs: g, paint: p}
}

// draw replaces the view, in one write, unless nothing has changed.
func (s *screen) draw(view []string) {
	width, _ := s.size()
	same := width == s.width && len(view) == len(s.drawn)
	for i := 0; same && i < len(view); i++ {
		same = view[i] == s.drawn[i]
	}
	if same {
		return
	}
	var out strings.Builder
	left := 0             // rows below the new view that the old one has left
	if s.width != width { // rows of the view may have been wrapped
		out.WriteString(s.erasure())
	} else if len(s.drawn) > 0 {
		fmt.Fprintf(&out, "\r\x1b[%dA", len(s.drawn))
		left = len(s.drawn) - len(view)
	}
	for _, row := range view {
		out.WriteString(row + "\x1b[K\n")
	}
	if left > 0 {
		out.WriteString(strings.Repeat("\x1b[K\n", left) + erase(left))
	}
	s.write(out.String(), view)
}

// print prints text above the view.
func (s *screen) print(text string, view []string) {
	out := s.erasure() + text + "\n"
	for _, row := range view {
		out += row + "\n"
	}
	s.write(out, view)
}

// write brings a view to the terminal, which echoes nothing as long as there is one.
func (s *screen) write(out string, view []string) {
	if len(view) > 0 {
		s.hideKeys()
	}
	io.WriteString(s.w, out) //nolint:errcheck // a closed terminal must not end a run
	if len(view) == 0 {
		s.showKeys()
	}
	s.drawn = view
	s.width, _ = s.size()
}

// erasure clears the view and moves the cursor to its first row. A narrower terminal wraps the rows anew.
func (s *screen) erasure() string {
	width, height := s.size()
	rows := len(s.drawn)
	if width < s.width {
		rows = 0
		for _, row := range s.drawn {
			rows += max(1, (cells(uncoloured(row))+width-1)/width)
		}
	}
	return erase(min(rows, height-1))
}

// erase clears the rows above the cursor, from the last to the first. To clear everything below a row would
// be shorter, but tmux then moves a whole screen into its history.
func erase(rows int) string {
	if rows == 0 {
		return ""
	}
	return "\r" + strings.Repeat("\x1b[A\x1b[K", rows)
}

// hideKeys turns off the terminal's echo: a typed Enter would move the cursor, and leave a row of the view
// behind. Only a process in the foreground may do so; the kernel would stop another one.
func (s *screen) hideKeys() {
	terminal, is := s.w.(*os.File)
	if !is || s.echo != nil || !inForeground(terminal) {
		return
	}
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), getTermios)
	if err != nil || before.Lflag&unix.ECHO == 0 {
		return
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	if unix.IoctlSetTermios(int(terminal.Fd()), setTermios, &hidden) == nil {
		s.echo = before
	}
}

// showKeys turns the echo on again. The shell has done so already if castle is in the background by now.
func (s *screen) showKeys() {
	if terminal, is := s.w.(*os.File); is && s.echo != nil && inForeground(terminal) {
		_ = unix.IoctlSetTermios(int(terminal.Fd()), setTermios, s.echo) // the terminal may be gone
	}
	s.echo = nil
}

// inForeground reports whether a terminal's keys are for castle.
func inForeground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// uncoloured removes the colours that painter adds.
func uncoloured(s string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "\x1b[")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		_, s, _ = strings.Cut(rest, "m")
	}
}

// Columns returns a terminal's width, or unknown if w is not a terminal.
func Columns(w io.Writer, unknown int) int {
	width, _ := size(w, unknown, 0)
	return width
}

// size returns a terminal's columns and rows, or what is given for anything else.
func size(w io.Writer, columns, rows int) (int, int) {
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 2 && height > 1 {
			return width, height
		}
	}
	return columns, rows
}

// frame is the time between two looks at the events, the time and the terminal's size.
const frame = 200 * time.Millisecond

// refresh draws the view now, and again after each frame as long as there is one. The caller holds l.mu.
func (l *Lines) refresh() {
	view := l.view()
	l.screen.draw(view)
	if len(view) == 0 || l.ticking {
		return
	}
	l.ticking = true
	time.AfterFunc(frame, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ticking = false
		l.refresh()
	})
}

// view returns the rows to draw now.
func (l *Lines) view() []string {
	if l.hidden || l.ended {
		return nil
	}
	g := unicodeGlyphs
	if l.o.ASCII {
		g = asciiGlyphs
	}
	return view(l.run, time.Now(), l.usual, l.screen.canvas(g, l.paint))
}

// Ask prints a question and hides the view until answered is called: the user types below the question.
func (l *Lines) Ask(text string) (answered func()) {
	l.show(false)
	l.Say(text)
	return func() { l.show(true) }
}

// Close removes the view.
func (l *Lines) Close() { l.show(false) }

func (l *Lines) show(visible bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hidden = !visible; l.screen != nil {
		l.refresh()
	}
}

// Learn takes in the usual durations of earlier runs.
func (l *Lines) Learn(usual history.Usual) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usual = usual
}

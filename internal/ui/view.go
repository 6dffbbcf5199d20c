package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/history"
)

// canvas is what a view is drawn for.
type canvas struct {
	width, height int // at most so many columns and rows
	glyphs        glyphs
	paint         painter
}

// glyphs are the signs of a view.
type glyphs struct{ done, failed, working, waiting, cut string }

var (
	unicodeGlyphs = glyphs{"✓", "✗", "›", "·", "…"}
	asciiGlyphs   = glyphs{"+", "x", ">", "-", "..."}
)

// rank orders the rows of a view by what is left out first where the screen is too low.
type rank int

const (
	always rank = iota
	stageRow
	detailRow
	settledRow
	waitingRow
)

// row is one line of a view. end is aligned to the right, if it fits.
type row struct {
	rank  rank
	text  []span
	end   []string // alternatives, the longest first
	style func(painter, string) string
}

// span is a piece of a row in one colour; nil is none.
type span struct {
	text  string
	style func(painter, string) string
}

// view draws what a run is at: a head, a line for each layer, and below it the stages at work. It is a
// function of the events, the time, the usual durations and the canvas alone.
func view(t *history.Timeline, now time.Time, u history.Usual, c canvas) []string {
	p := t.Part()
	rows := []row{head(t, now, u, c)}
	for _, name := range layers(p) {
		rows = append(rows, layer(p, name, now, u, c)...)
	}
	if len(rows) == 1 && p.Command == "" {
		return nil // nothing is at work
	}
	return xslices.Map(fit(rows, c), func(r row) string { return r.draw(c) })
}

// layers returns the layers in the order in which their stages appear.
func layers(p *history.Part) (names []string) {
	for _, s := range p.Stages {
		if !slices.Contains(names, s.Layer) {
			names = append(names, s.Layer)
		}
	}
	return names
}

func head(t *history.Timeline, now time.Time, u history.Usual, c canvas) row {
	rest := "  " + clock(now.Sub(t.Began))
	p, title := t.Part(), visible(t.Title)
	done, all := 0, 0
	for _, s := range p.Stages {
		if s.Selected {
			all++
			if s.Changed() || s.Result == event.ResultUpToDate {
				done++
			}
		}
	}
	if all > 0 {
		word := "ready"
		if p.Command == "destroy" {
			word = "gone"
		}
		rest += fmt.Sprintf("  %d/%d %s", done, all, word)
	}
	if left, known := p.Left(now, u); known {
		rest += fmt.Sprintf("  about %s left", brief(roughly(left)))
	}
	verb, _, _ := strings.Cut(title, " ")
	for _, title := range []string{title, verb} {
		if cells(title+rest) <= c.width {
			return row{text: []span{{title, painter.bold}, {text: rest}}}
		}
	}
	return row{text: []span{{text: strings.TrimPrefix(rest, "  ")}}}
}

// layer returns one line for a layer, and those of its stages at work.
func layer(p *history.Part, name string, now time.Time, u history.Usual, c canvas) []row {
	var working, waiting []*history.Stage
	counts := map[event.Result]int{}
	for _, s := range p.Stages {
		switch {
		case s.Layer != name:
			continue
		case s.Result != "":
			counts[s.Result]++
		case s.Working():
			working = append(working, s)
		default:
			waiting = append(waiting, s)
		}
	}
	if p.Command == "" && len(working) == 0 {
		return nil // nothing tells how many stages there are
	}
	parts := counted(counts)
	r := row{rank: settledRow, style: painter.dim}
	glyph := span{c.glyphs.done, painter.green}
	switch {
	case counts[event.ResultFailed] > 0:
		glyph, r.rank = span{c.glyphs.failed, painter.red}, stageRow
	case len(working) > 0:
		glyph = span{c.glyphs.working, painter.yellow}
	case len(waiting) > 0:
		glyph, r.rank = span{c.glyphs.waiting, painter.dim}, waitingRow
	case counts[event.ResultSkipped]+counts[event.ResultInterrupted] > 0:
		glyph = span{c.glyphs.failed, painter.yellow}
	}
	if len(working) > 0 {
		r.rank, r.style = stageRow, nil
		parts = append(parts, fmt.Sprintf("%d at work", len(working)))
	}
	if len(waiting) > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting%s", len(waiting), blockers(p, waiting, len(working))))
	}
	r.text = []span{glyph, {text: fmt.Sprintf(" %-10s  %s", name, strings.Join(parts, ", "))}}
	rows := []row{r}
	longest := 0
	for _, s := range working {
		longest = max(longest, cells(s.Stage))
	}
	for _, s := range working {
		rows = append(rows, stageRows(p, s, min(longest, 24), now, u, c)...)
	}
	return rows
}

// blockers names the stages that those of a layer wait for, unless its own stages at work tell enough.
func blockers(p *history.Part, waiting []*history.Stage, working int) string {
	if working > 0 {
		return ""
	}
	var names []string
	for _, s := range waiting {
		needs := s.Needs
		if s.Deferred() {
			needs = s.GatesNeed
		}
		for _, name := range needs {
			if need := p.Stage(name); need != nil && need.Working() && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " for " + strings.Join(names, ", ")
}

// stageRows describes a stage at work in one line, or in more if the detail does not fit.
func stageRows(p *history.Part, s *history.Stage, width int, now time.Time, u history.Usual, c canvas) []row {
	action, d := activity(s, now)
	name, below, most := fmt.Sprintf("    %-*s  ", width, s.Stage), "      ", 2
	if c.width < narrow {
		name, below, most = fmt.Sprintf("  %s  ", s.Stage), "    ", 3
	}
	one := row{rank: stageRow, text: []span{{text: name + action}}, end: pace(p, s, now, u)}
	if d.text == "" {
		return []row{one}
	}
	if whole := one; whole.width()+2+cells(d.text+d.end) <= c.width {
		whole.text = append(whole.text, span{"  " + d.text + d.end, painter.dim})
		return []row{whole}
	}
	rows := []row{one}
	for _, line := range d.wrap(c.width-len(below), most, c.glyphs) {
		rows = append(rows, row{rank: detailRow, text: []span{{below + line, painter.dim}}})
	}
	return rows
}

// detail is a text and its end, which stays when the text is cut.
type detail struct {
	text, end string
	address   bool // of a resource: its end, the key, matters as much as its start
}

// wrap breaks a detail between words into so many lines at most. If they do not hold it, words in its middle
// are left out: the end of an error is its cause.
func (d detail) wrap(width, most int, g glyphs) []string {
	if d.address {
		return []string{cutMiddle(d.text, width-cells(d.end), g) + d.end}
	}
	words := strings.Fields(d.text)
	if len(words) > 0 {
		words[len(words)-1] += d.end
	}
	lines := fill(words, width)
	if len(lines) <= most && cells(lines[len(lines)-1]) <= width {
		return lines
	}
	lines, last := lines[:min(most, len(lines))-1], len(words)-1
	shown := len(strings.Fields(strings.Join(lines, " ")))
	for last > shown && cells(g.cut+" "+strings.Join(words[last-1:], " ")) <= width {
		last--
	}
	cause := strings.TrimSuffix(strings.Join(words[last:], " "), d.end)
	return append(lines, g.cut+" "+cut(cause, width-cells(g.cut+" "+d.end), g)+d.end)
}

// fill joins words to lines of at most so many columns. A longer word has a line of its own.
func fill(words []string, width int) (lines []string) {
	line := ""
	for _, word := range words {
		longer := strings.TrimPrefix(line+" "+word, " ")
		if line != "" && cells(longer) > width {
			lines, longer = append(lines, line), word
		}
		line = longer
	}
	return append(lines, line)
}

// pace returns how long a stage has been at work, and how long it usually is; in several lengths.
func pace(p *history.Part, s *history.Stage, now time.Time, u history.Usual) []string {
	began, wait := s.Active, s.LateWait()
	if s.Deferred() && wait != nil {
		began = wait.Started
	}
	if began.IsZero() || s.Deferred() && wait == nil {
		return nil
	}
	elapsed := clock(now.Sub(began))
	took := u.Of(p.Node(s, s.Deferred()))
	if took == nil {
		return []string{elapsed}
	}
	typical := brief(took.Round(time.Second))
	return []string{elapsed + ", usually " + typical, elapsed + "/" + typical, elapsed}
}

// activity returns what castle does for a stage now, and the resource or gate that it is about.
func activity(s *history.Stage, now time.Time) (action string, d detail) {
	step, last := s.Step(), []string{"apply", "destroy", "gates", "proof"}
	switch {
	case step == nil && s.Retry != nil:
		return "retry", detail{text: visible(s.Retry.Text)}
	case step == nil && s.Last != nil && slices.Contains(last, s.Last.Name):
		return "finishing", detail{}
	case step == nil:
		return "preparing", detail{}
	case step.Name == history.GatesStep:
		return waiting(s, step, now)
	}
	action = step.Name
	p := s.Progress(step)
	switch {
	case step.Total > 0:
		action += fmt.Sprintf(" %d/%d", p.Done, step.Total)
	case p.Done > 0:
		action += fmt.Sprintf(" %d", p.Done)
	}
	if len(p.Resources) == 0 {
		return action, detail{}
	}
	oldest := p.Resources[0]
	took := clock(now.Sub(oldest.Started))
	return action, detail{visible(oldest.Address), " " + took + more(len(p.Resources)-1), true}
}

// waiting describes a wait for gates: how many are open, how long it may last, and why one is closed.
func waiting(s *history.Stage, step *history.Step, now time.Time) (action string, d detail) {
	p := s.Progress(step)
	action = "gates "
	if step.Total > 0 {
		action += fmt.Sprintf("%d/%d ", p.Done, step.Total)
	}
	action += clock(now.Sub(step.Started))
	if len(p.Gates) == 0 {
		return action, detail{}
	}
	g := p.Gates[0]
	if g.Timeout > 0 {
		action += " of " + brief(g.Timeout)
	}
	return action, detail{text: g.Name + ": " + visible(g.Reason),
		end: " (" + clock(now.Sub(g.Since)) + ")" + more(len(p.Gates)-1)}
}

func more(n int) string {
	if n < 1 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}

// visible is a text in one line, with nothing that would move the cursor.
func visible(s string) string { return foreign.Text(foreign.OneLine(s)) }

// roughly rounds an estimate up, to as many digits as it is worth.
func roughly(d time.Duration) time.Duration {
	unit := 5 * time.Second
	switch {
	case d > 10*time.Minute:
		unit = time.Minute
	case d > time.Minute:
		unit = 10 * time.Second
	}
	return (d + unit - 1).Truncate(unit)
}

// brief formats a duration in whole seconds: 38s, 1m12s, 10m, 1h05m.
func brief(d time.Duration) string { return strings.TrimSuffix(clock(d), "00s") }

// clock is brief for a time that passes: a full minute is 10m00s.
func clock(d time.Duration) string {
	s := int(max(0, d).Seconds())
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
}

// fit leaves out rows until the rest is no higher than the canvas.
func fit(rows []row, c canvas) []row {
	for drop := waitingRow; len(rows) > c.height && drop > always; drop-- {
		for i := len(rows) - 1; i >= 0 && len(rows) > c.height; i-- {
			if rows[i].rank == drop {
				rows = slices.Delete(rows, i, i+1)
			}
		}
	}
	return rows[:min(len(rows), max(c.height, 1))]
}

func (r row) width() (n int) {
	for _, s := range r.text {
		n += cells(s.text)
	}
	if len(r.end) > 0 {
		n += 2 + cells(r.end[len(r.end)-1])
	}
	return n
}

// draw renders a row in at most the canvas's width.
func (r row) draw(c canvas) string {
	var out strings.Builder
	room := c.width
	for _, s := range r.text {
		text := cut(s.text, room, c.glyphs)
		room -= cells(text)
		if r.style != nil && s.style == nil {
			s.style = r.style
		}
		if s.style != nil {
			text = s.style(c.paint, text)
		}
		out.WriteString(text)
	}
	for _, end := range r.end {
		if cells(end)+2 <= room {
			return out.String() + strings.Repeat(" ", room-cells(end)) + c.paint.dim(end)
		}
	}
	return out.String()
}

// cut shortens a text to so many columns.
func cut(text string, room int, g glyphs) string {
	if cells(text) <= room {
		return text
	}
	if room < cells(g.cut) {
		return ""
	}
	return columns.Truncate(text, room, g.cut)
}

// cutMiddle shortens a text to so many columns, and keeps its start and its end.
func cutMiddle(text string, room int, g glyphs) string {
	if cells(text) <= room {
		return text
	}
	runes := []rune(text)
	for from, to := len(runes)/2, len(runes)/2; from > 0; {
		if from--; to < len(runes)-1 {
			to++
		}
		if short := string(runes[:from]) + g.cut + string(runes[to:]); cells(short) <= room {
			return short
		}
	}
	return cut(text, room, g)
}

// columns knows how wide characters are, whatever the locale: it says nothing of the terminal.
var columns = &runewidth.Condition{StrictEmojiNeutral: true}

// cells returns how many columns a text takes on a terminal.
func cells(text string) int { return columns.StringWidth(text) }

package report

import (
	"fmt"
	"math"
	"strings"

	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"

	"github.com/ephemeral-castle/castle/internal/history"
)

// The geometry of the timeline, in pixels.
const (
	rowHeight  = 26
	chartWidth = 760
	endWidth   = 70
	axisHeight = 28
)

// chart is the timeline as the page draws it.
type chart struct {
	Width, Height int
	Names         int // where the names end
	Bottom        int // of the rows
	Rows          []chartRow
	Ticks         []chartTick
}

type chartRow struct {
	Y, Text    int // the top of the row, and the baseline of its texts
	Name       string
	Critical   bool
	Took       string
	TookX      float64
	Whole      chartBar
	Bars       []chartBar
	Result     string
	ResultText string
}

type chartBar struct {
	X, Width float64
	Class    string // terraform, gates, other or between
	Hint     string
}

type chartTick struct {
	X    float64
	Text string
}

// newChart lays the timeline out.
func newChart(r *Report) chart {
	c := chart{Bottom: axisHeight + rowHeight*len(r.Stages)}
	c.Height = c.Bottom + 6
	whole := 0.0
	for _, s := range r.Stages {
		c.Names = max(c.Names, 12+7*len(s.Layer+"/"+s.Name))
		whole = max(whole, s.Ended.Sub(r.Began).Seconds())
	}
	if whole == 0 {
		whole = 1
	}
	left := float64(c.Names + 10)
	c.Width = c.Names + 10 + chartWidth + endWidth
	x := func(seconds float64) float64 { return left + math.Round(chartWidth*seconds/whole*10)/10 }
	for at := 0.0; at <= whole; at += tick(whole) {
		text := strings.TrimSuffix(Took(at), ".0s")
		if text == strings.TrimSuffix(text, "s") && at < 60 {
			text += "s"
		}
		c.Ticks = append(c.Ticks, chartTick{x(at), text})
	}
	for i, s := range r.Stages {
		top, start := axisHeight+rowHeight*i, s.Started.Sub(r.Began).Seconds()
		bar := func(from, seconds float64, class, hint string) chartBar {
			from = max(0, from)
			return chartBar{x(from), max(1.5, x(from+seconds)-x(from)), class, hint}
		}
		name := s.Layer + "/" + s.Name
		row := chartRow{
			Y: top, Text: top + 17, Name: name, Critical: s.Critical, Took: Took(s.Seconds),
			TookX: x(start+s.Seconds) + 6, Result: s.Result, ResultText: ResultText(s.Result),
			Whole: bar(start, s.Seconds, "between", fmt.Sprintf("%s: %s, %s", name, ResultText(s.Result),
				Took(s.Seconds))),
		}
		for _, step := range s.Steps {
			class := "other"
			if history.RunsTerraform(step.Step) {
				class = "terraform"
			}
			hint := fmt.Sprintf("%s: %s, %s", name, step.Step, Took(step.Seconds))
			if isGates(step.Step) {
				class, hint = "gates", hint+gatesHint(s.Gates)
			}
			row.Bars = append(row.Bars, bar(step.Start, step.Seconds, class, hint))
		}
		c.Rows = append(c.Rows, row)
	}
	return c
}

// gatesHint lists gates and their durations, a line each.
func gatesHint(gates []Gate) (hint string) {
	for _, gate := range gates {
		hint += fmt.Sprintf("\n%s %s after %s", gate.Name, gate.Result, Took(gate.Seconds))
	}
	return hint
}

// tick returns a round distance, in seconds, so that an axis has at most eight.
func tick(whole float64) float64 {
	for _, step := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800} {
		if whole/step <= 8 {
			return step
		}
	}
	return math.Ceil(whole/8/3600) * 3600
}

func (c chart) svg() g.Node {
	return html.SVG(html.ID("timeline"), number("width", c.Width), number("height", c.Height),
		g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", c.Width, c.Height)), html.Role("img"),
		html.Aria("label", "Timeline of the stages"), lines(g.Map(c.Ticks, c.tick), g.Map(c.Rows, c.row)))
}

// tick is a line across the rows, with its time above.
func (c chart) tick(t chartTick) g.Node {
	return g.Group{
		g.El("line", html.Class("grid"), number("x1", t.X), number("x2", t.X), number("y1", 22),
			number("y2", c.Bottom)),
		g.El("text", html.Class("axis"), number("x", t.X), number("y", 16), g.Attr("text-anchor", "middle"),
			g.Text(t.Text)),
	}
}

// row is the name of a stage, its bars and its duration.
func (c chart) row(r chartRow) g.Node {
	class := r.Result
	if r.Critical {
		class += " critical"
	}
	bar := func(b chartBar) g.Node {
		return g.El("rect", html.Class("bar "+b.Class), number("x", b.X), number("y", r.Y),
			number("width", b.Width), number("height", 20), number("rx", 2), html.Data("hint", b.Hint),
			html.TitleEl(g.Text(b.Hint)))
	}
	return g.Group{
		g.El("text", html.Class(class), number("x", c.Names), number("y", r.Text),
			g.Attr("text-anchor", "end"), g.Text(r.Name), html.TitleEl(g.Text(r.ResultText))),
		bar(r.Whole),
		g.Map(r.Bars, bar),
		g.El("text", html.Class("axis"), number("x", r.TookX), number("y", r.Text), g.Text(r.Took)),
	}
}

// number is an attribute with a number.
func number[N int | float64](name string, value N) g.Node { return g.Attr(name, fmt.Sprint(value)) }

// legend explains the colors of the chart.
func legend() g.Node {
	color := func(name, text string) g.Node {
		return html.Li(html.I(html.Style("background: var(--"+name+")")), g.Text(text))
	}
	return html.Ul(html.Class("legend"), lines(
		color("terraform", "Terraform"),
		color("gates", "gates"),
		color("other", "checks"),
		color("between", "between, such as a wait for a free slot"),
		html.Li(html.Strong(g.Text("bold")), g.Text("\u00a0on the critical path")),
	))
}

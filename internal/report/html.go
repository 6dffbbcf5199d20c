package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
)

//go:embed page.html
var page string

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

// WriteHTML prints the report as one page that loads nothing from elsewhere.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"took": Took, "result": resultText,
		"ratio": func(x float64) string { return fmt.Sprintf("%.1f", x) },
		"usual": func(s *float64) string {
			if s == nil {
				return ""
			}
			return Took(*s)
		},
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"R": r, "Title": r.Title(), "Totals": r.Totals(), "When": r.when(), "Runs": r.runsText(),
		"Chart": newChart(r), "Slower": texts(r.Slower, Slower.String),
	})
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
			TookX: x(start+s.Seconds) + 6, Result: s.Result, ResultText: resultText(s.Result),
			Whole: bar(start, s.Seconds, "between", fmt.Sprintf("%s: %s, %s", name, resultText(s.Result),
				Took(s.Seconds))),
		}
		for _, step := range s.Steps {
			class := "other"
			if event.RunsTerraform(step.Step) {
				class = "terraform"
			}
			hint := fmt.Sprintf("%s: %s, %s", name, step.Step, Took(step.Seconds))
			if step.Step == gateStep {
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
	for _, g := range gates {
		hint += fmt.Sprintf("\n%s %s after %s", g.Name, g.Result, Took(g.Seconds))
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

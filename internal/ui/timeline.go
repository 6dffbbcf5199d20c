package ui

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// NewTable returns a writer that aligns columns, separated by tabs, until it is flushed.
func NewTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// barWidth is the length of the longest bar, in characters.
const barWidth = 32

// WriteTimeline prints one row for each stage of a run: its result, the durations of Terraform and of the
// gates, and their time in the run. The receipt follows, if there is one.
func WriteTimeline(w io.Writer, events []event.Event) {
	if spans := event.Timeline(events); len(spans) > 0 {
		writeSpans(w, spans)
	}
	for _, e := range events {
		if e.Kind == event.Receipted {
			fmt.Fprintln(w, e.Text)
		}
	}
}

func writeSpans(w io.Writer, spans []*event.Span) {
	first, last := spans[0].Started, spans[0].Ended
	for _, s := range spans {
		if s.Started.Before(first) {
			first = s.Started
		}
		if s.Ended.After(last) {
			last = s.Ended
		}
	}
	t := NewTable(w)
	fmt.Fprintf(t, "layer\tstage\tresult\tterraform\tgates\ttotal\t\n")
	for _, s := range spans {
		terraform := time.Duration(0)
		for step, took := range s.Steps {
			if step != "gates" && step != "preflight" && step != "proof" && step != "revoke" {
				terraform += took
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Layer, s.Stage, result(s.Result), short(terraform),
			short(s.Steps["gates"]), short(s.Ended.Sub(s.Started)), bar(first, last, s))
	}
	fmt.Fprintf(t, "\t\t\t\t\t%s\t\n", short(last.Sub(first)))
	t.Flush() //nolint:errcheck // a closed pipe: nobody reads the table
}

func result(r event.Result) string {
	if r == event.ResultUpToDate {
		return "up to date"
	}
	return cmp.Or(string(r), "unfinished")
}

func short(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// bar draws when a stage ran, within the whole run.
func bar(first, last time.Time, s *event.Span) string {
	whole := last.Sub(first)
	if whole <= 0 {
		return ""
	}
	at := func(x time.Time) int { return int(float64(barWidth) * float64(x.Sub(first)) / float64(whole)) }
	from, to := at(s.Started), at(s.Ended)
	return strings.Repeat(" ", from) + strings.Repeat("█", max(1, to-from))
}

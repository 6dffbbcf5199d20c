package ui

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/report"
)

// results are the results of stages, in the order in which a summary counts them.
var results = []event.Result{event.ResultReady, event.ResultUpToDate, event.ResultGone, event.ResultFailed,
	event.ResultInterrupted, event.ResultSkipped}

// Summary prints how the reported run ended, and reports whether it has ended.
func (l *Lines) Summary() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run.End == nil || l.run.End.Ending == nil {
		return false
	}
	l.print(strings.TrimSuffix(summary(*l.run.End.Ending), "\n"))
	return true
}

// summary renders an ending: the stages by result, each root cause with the next step, and how to resume.
func summary(e event.Ending) string {
	var b strings.Builder
	var counts []string
	total := 0
	for _, r := range results {
		if n := e.Stages[r]; n > 0 {
			total += n
			counts = append(counts, fmt.Sprintf("%d %s", n, report.ResultText(string(r))))
		}
	}
	if total > 0 {
		took := time.Duration(e.Seconds * float64(time.Second))
		whole := clock(took.Round(time.Second))
		if took < time.Second {
			whole = took.Round(time.Millisecond).String()
		}
		fmt.Fprintf(&b, "%d %s: %s in %s\n", total, plural(total, "stage"), strings.Join(counts, ", "), whole)
	}
	if e.Result == event.OutcomeInterrupted {
		b.WriteString("castle: interrupted\n")
	}
	for _, c := range e.Causes {
		writeCause(&b, c)
	}
	if e.Resume != "" {
		fmt.Fprintf(&b, "Resume: %s\n", e.Resume)
	}
	return b.String()
}

func writeCause(w io.Writer, c event.Cause) {
	where := ""
	if len(c.Stages) > 0 {
		where = plural(len(c.Stages), "stage") + " " + strings.Join(c.Stages, ", ") + ": "
	}
	fmt.Fprintf(w, "castle: %s%s\n", where, c.Text)
	var closes []string
	if len(c.Gates) > 0 {
		closes = append(closes, "closes "+firstNames(c.Gates))
	}
	if c.Follow > 0 {
		closes = append(closes, event.Following(c.Follow))
	}
	if len(closes) > 0 {
		fmt.Fprintf(w, "  %s\n", strings.Join(closes, "; "))
	}
	if c.Next != "" {
		fmt.Fprintf(w, "Next: %s\n", c.Next)
	}
}

// mostNamed is how many gates a summary names.
const mostNamed = 3

// firstNames lists names, and counts those beyond the first few.
func firstNames(names []string) string {
	if more := len(names) - mostNamed; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

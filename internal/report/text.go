package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
)

// The length of the longest bar, in characters, and the shortest that still shows something.
const (
	barWidth   = 32
	leastWidth = 8
)

// The characters of a bar: the steps of Terraform, the wait for gates, and the time between.
const (
	barTerraform = '█'
	barGates     = '▒'
	barBetween   = '·'
	barLegend    = string(barTerraform) + " terraform " + string(barGates) + " gates"
)

// WriteTimeline prints one row for each stage: its result, the durations of Terraform and of the gates, and
// their time in the run. On a terminal, width is the number of columns, else 0. The bars are cut to it, and
// the layers, or all but the results and totals, are left out where they have no room.
func WriteTimeline(w io.Writer, stages []*history.Stage, width int) {
	if len(stages) == 0 {
		return
	}
	byStart := func(a, b *history.Stage) int { return a.Started.Compare(b.Started) }
	byEnd := func(a, b *history.Stage) int { return a.Ended.Compare(b.Ended) }
	first, last := slices.MinFunc(stages, byStart).Started, slices.MaxFunc(stages, byEnd).Ended
	rows := [][]string{{"layer", "stage", "result", "terraform", "gates", "total"}}
	for _, s := range stages {
		rows = append(rows, []string{s.Layer, s.Stage, ResultText(string(s.Result)),
			short(s.Took(history.RunsTerraform)), short(s.Took(isGates)), short(s.Ended.Sub(s.Started))})
	}
	rows = append(rows, []string{"", "", "", "", "", short(last.Sub(first))})
	var lines []string
	for _, columns := range [][]int{{0, 1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 5}} {
		lines = aligned(rows, columns)
		if width == 0 || utf8.RuneCountInString(strings.TrimRight(lines[0], " ")) <= width {
			break
		}
	}
	length, legend := barWidth, barLegend
	if width > 0 {
		left := width - utf8.RuneCountInString(lines[0])
		length = min(length, left-1) // a bar that begins at the end of the run is drawn behind it
		if left < utf8.RuneCountInString(legend) {
			legend = ""
		}
	}
	if length >= leastWidth {
		lines[0] += legend
		for i, s := range stages {
			lines[1+i] += bar(first, last, s, length)
		}
	}
	for _, line := range lines {
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// aligned returns these columns of a table as lines of one length.
func aligned(rows [][]string, columns []int) []string {
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for _, i := range columns {
			fmt.Fprintf(t, "%s\t", row[i])
		}
		fmt.Fprintln(t)
	}
	t.Flush() //nolint:errcheck // a builder returns no error
	return strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")
}

// ResultText is the result of a stage in words.
func ResultText(r string) string {
	if r == string(event.ResultUpToDate) {
		return "up to date"
	}
	return cmp.Or(r, unfinished)
}

// bar draws when a stage ran, within the whole run, which is length characters long.
func bar(first, last time.Time, s *history.Stage, length int) string {
	whole := last.Sub(first)
	if whole <= 0 {
		return ""
	}
	at := func(x time.Time) int {
		return min(max(0, int(float64(length)*float64(x.Sub(first))/float64(whole))), length)
	}
	drawn := []rune(strings.Repeat(" ", length+1))
	draw := func(from, to time.Time, with rune) {
		for i := at(from); i < max(at(from)+1, at(to)); i++ {
			drawn[i] = with
		}
	}
	draw(s.Started, s.Ended, barBetween)
	for _, i := range s.Steps {
		end := i.Ended
		if end.IsZero() {
			end = s.Ended
		}
		switch {
		case isGates(i.Name):
			draw(i.Started, end, barGates)
		case history.RunsTerraform(i.Name):
			draw(i.Started, end, barTerraform)
		}
	}
	return strings.TrimRight(string(drawn), " ")
}

func short(d time.Duration) string { return orNone(d.Seconds()) }

// orNone formats a duration in seconds; a stage without such a step has none.
func orNone(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return Took(seconds)
}

// Took formats a duration in seconds: 4.2s, 7m02s, 2h03m.
func Took(seconds float64) string {
	whole := int(seconds + 0.5)
	switch {
	case seconds < 60:
		return fmt.Sprintf("%.1fs", seconds)
	case whole < 3600:
		return fmt.Sprintf("%dm%02ds", whole/60, whole%60)
	}
	return fmt.Sprintf("%dh%02dm", whole/3600, whole/60%60)
}

// Title is the first line of a report.
func (r *Report) Title() string {
	usual := ""
	if r.UsualSeconds != nil {
		usual = ", usually " + Took(*r.UsualSeconds)
	}
	return fmt.Sprintf("%s %s: %s after %s%s", r.Kind, r.Cluster, r.Result, Took(r.Seconds), usual)
}

// Totals describe the counts of the run.
func (r *Report) Totals() []string {
	totals := []string{counted(r.Counts.Stages, "stage", ResultText)}
	resources := counted(r.Counts.Resources, "resource", func(action string) string {
		return cmp.Or(pastTense[action], action)
	})
	totals = append(totals, cmp.Or(resources, "no resource changed"))
	totals = append(totals, counted(r.Counts.Gates, "gate", func(result string) string { return result }))
	if n := r.Counts.Retries; n > 0 {
		totals = append(totals, plural(n, "retry", "retries"))
	}
	return slices.DeleteFunc(totals, func(s string) bool { return s == "" })
}

// pastTense names what was done to resources.
var pastTense = map[string]string{
	"create": "created", "update": "updated", "delete": "deleted", "import": "imported",
	"replace": "replaced", "restore": "restored",
}

// counted lists the counts by word: "12 stages ready", or "3 stages: 2 ready, 1 failed".
func counted(counts map[string]int, what string, word func(string) string) string {
	var parts []string
	sum := 0
	byCount := func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) }
	for _, key := range slices.SortedFunc(maps.Keys(counts), byCount) {
		sum += counts[key]
		parts = append(parts, fmt.Sprintf("%d %s", counts[key], word(key)))
	}
	whole := plural(sum, what, what+"s")
	switch len(parts) {
	case 0:
		return ""
	case 1:
		_, only, _ := strings.Cut(parts[0], " ")
		return whole + " " + only
	}
	return whole + ": " + strings.Join(parts, ", ")
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// Path describes the critical path: "infisical 18.8s → proxmox-image 41.8s".
func (r *Report) Path() string {
	var steps []string
	for _, s := range r.CriticalPath {
		name := s.Stage
		if s.Late {
			name += " (late gates)"
		}
		steps = append(steps, name+" "+Took(s.Seconds))
	}
	return strings.Join(steps, " → ")
}

// when formats the time of a run.
func (r *Report) when() string {
	const layout = "2006-01-02 15:04:05"
	return r.Began.UTC().Format(layout) + " to " + r.Ended.UTC().Format(time.TimeOnly) + " UTC"
}

// timestamp formats a time for XML and for programs.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05") }

// runsText names the runs that the medians are from.
func (r *Report) runsText() string {
	return plural(r.Earlier, "earlier "+r.Kind, "earlier "+r.Kind+"s")
}

// WriteText prints the report for a terminal.
func (r *Report) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s\nrun %s, %s\n%s\n\n", r.Title(), r.Run, r.when(), strings.Join(r.Totals(), "; "))
	WriteTimeline(w, r.stages, 0)
	writeList(w, "Machines:", xslices.Map(r.Machines, machineLine))
	if len(r.CriticalPath) > 0 {
		fmt.Fprintf(w, "\nCritical path, %s: %s\n", Took(r.CriticalSeconds), r.Path())
	}
	if len(r.Flux) > 0 {
		fmt.Fprintln(w, "\nFlux, in the order in which it became ready:")
		WriteFlux(w, r.Flux)
	}
	if len(r.Slowest) > 0 {
		fmt.Fprint(w, "\nSlowest resources:\n")
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, x := range r.Slowest {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", Took(x.Seconds), x.outcome(), x.Stage, x.Address)
		}
		t.Flush() //nolint:errcheck // a closed pipe: nobody reads the table
	}
	writeList(w, "Retries:", xslices.Map(r.Retries, Retry.String))
	if r.Earlier > 0 && len(r.Slower) == 0 {
		fmt.Fprintf(w, "\nNothing took longer than usual (medians of %s).\n", r.runsText())
	}
	writeList(w, "Longer than usual (medians of "+r.runsText()+"):", xslices.Map(r.Slower, Slower.String))
	writeList(w, "Causes:", xslices.Map(r.Causes, Cause.String))
	writeList(w, "Diagnoses:", xslices.Map(r.Diagnoses, r.diagnosisText))
	if r.Error != "" && len(r.Causes) == 0 { // the causes are its summary
		writeList(w, "Error:", []string{r.Error})
	}
	writeList(w, "Notes:", r.Notices)
	if r.Receipt != "" {
		fmt.Fprintf(w, "\n%s\n", r.Receipt)
	}
	if r.Resume != "" {
		fmt.Fprintf(w, "\nResume with: %s\n", r.Resume)
	}
}

// WriteJSON prints the report for scripts.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// outcome names what happened to the resource.
func (x Resource) outcome() string {
	if x.Failed {
		return x.Action + " failed"
	}
	return x.Action
}

// String is one line.
func (x Retry) String() string { return x.Stage + ": " + x.Text }

// String is the cause, its gates and what to do, a line each.
func (c Cause) String() string {
	text := c.Text
	if len(c.Stages) > 0 {
		text = strings.Join(c.Stages, ", ") + ": " + text
	}
	if gates := c.GatesText(); gates != "" {
		text += "\ngates: " + gates
	}
	if c.Next != "" {
		text += "\nnext: " + c.Next
	}
	return text
}

// GatesText lists the gates that are closed for the cause.
func (c Cause) GatesText() string {
	text := strings.Join(c.Gates, ", ")
	if c.Follow > 0 {
		text += fmt.Sprintf(" and %s in consequence", plural(c.Follow, "further one", "further ones"))
	}
	return text
}

// diagnosisText leaves out what the causes tell already.
func (r *Report) diagnosisText(d Diagnosis) string {
	if slices.ContainsFunc(r.Causes, func(c Cause) bool { return c.Text == d.Cause && c.Next == d.Next }) {
		if strings.HasPrefix(d.Cause, d.Seen) {
			d.Seen = ""
		}
		d.Cause, d.Next = "", ""
	}
	return d.String()
}

// String has a line for each part of the diagnosis that is known.
func (d Diagnosis) String() string {
	text := d.Stage
	for _, line := range [][2]string{{"waited for", d.Waited}, {"seen", d.Seen}, {"likely", d.Cause},
		{"next", d.Next}, {"files", d.Folder}} {
		if line[1] != "" {
			text += "\n" + line[0] + ": " + line[1]
		}
	}
	return text
}

func writeList(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, line := range lines {
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(line, "\n", "\n    "))
	}
}

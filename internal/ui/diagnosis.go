package ui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// diagnosis writes what a person needs to go on: five lines, and where the rest is.
func (l *Lines) diagnosis(e event.Event) string {
	d := e.Diagnosis
	if d == nil {
		return ""
	}
	head := l.paint.yellow("diagnosis")
	if d.Folder != "" {
		head += " in " + d.Folder
	}
	lines := []string{
		head,
		"waited for  " + d.Waited,
		"seen        " + d.Seen,
		"since       " + ago(d.Since, e.Time),
		"likely      " + cmp.Or(d.Cause, "no known cause"),
	}
	if d.Next != "" {
		lines = append(lines, "next        "+d.Next)
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\n", " ")
	}
	return strings.Join(lines, "\n")
}

// ago is a moment as it is told at another one, shortly after.
func ago(from, now time.Time) string {
	took := now.Sub(from).Round(time.Second)
	at := from.Local().Format(time.TimeOnly)
	if took < time.Second {
		return at
	}
	return fmt.Sprintf("%s, %s ago", at, took)
}

package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// WriteFlux prints Flux's objects in the order in which they became ready: how long each took, since when it
// is ready, and what it waited for. The chain that made it take that long follows.
func WriteFlux(w io.Writer, steps []event.FluxStep) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var chain []string
	for _, s := range steps {
		mark, took, ready, notes := "", "not ready", "", []string{}
		if s.Ready != nil {
			took, ready = "", s.Ready.UTC().Format(time.DateTime+" UTC")
		}
		if s.Seconds != nil {
			took = Took(*s.Seconds)
		}
		if s.Critical {
			mark, chain = "*", append(chain, strings.TrimSpace(s.Name+" "+took))
		}
		if s.Waits {
			notes = append(notes, "waits for its objects")
		}
		if len(s.DependsOn) > 0 {
			notes = append(notes, "after "+strings.Join(s.DependsOn, ", "))
		}
		if s.Reason != "" {
			notes = append(notes, s.Reason)
		}
		line := fmt.Sprintf("%1s %s\t%s\t%s\t%s", mark, s.Name, took, ready, strings.Join(notes, "; "))
		fmt.Fprintln(t, strings.TrimRight(line, "\t"))
	}
	t.Flush() //nolint:errcheck // a closed pipe: nobody reads the table
	if len(chain) > 0 {
		fmt.Fprintf(w, "\n* made it take that long: %s\n", strings.Join(chain, " → "))
	}
}

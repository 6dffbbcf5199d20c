package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/status"
)

// convergence prints Flux's objects in the order in which they became ready.
func (a *app) convergence(ctx context.Context, c *cluster.Cluster, _ []string) error {
	if a.output != "text" && a.output != "json" {
		return &cluster.UsageError{Message: "--flux: -o " + a.output + ": must be text or json"}
	}
	steps, err := status.Convergence(ctx, c)
	if err != nil {
		return err
	}
	return a.print(steps, func(w io.Writer) { printConvergence(w, steps) })
}

func printConvergence(w io.Writer, steps []*status.FluxStep) {
	var chain []string
	for _, s := range steps {
		waits := textIf(s.Waits, ", waits for its objects") + listIf(", after ", s.DependsOn)
		waits = strings.TrimPrefix(waits, ", ")
		ready := duration(s.Seconds)
		if s.Reason != "" {
			ready, waits = "not ready", strings.TrimPrefix(waits+": "+s.Reason, ": ")
		}
		fmt.Fprintf(w, "%1s %s\t%s\t%s\n", textIf(s.Critical, "*"), s.Name, ready, waits)
		if s.Critical {
			chain = append(chain, strings.TrimSpace(s.Name+" "+duration(s.Seconds)))
		}
	}
	if len(chain) > 0 {
		fmt.Fprintf(w, "\n* made it take that long: %s\n", strings.Join(chain, " → "))
	}
}

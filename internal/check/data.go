package check

import (
	"fmt"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/longhorn"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

const longhornTarget = "longhorn_backup_target"

// checkData reports volumes that Longhorn saves elsewhere than castle looks for them. The first create would
// find that too, with the whole cluster there.
func checkData(c *cluster, report reporter) {
	declares, target := c.declares[longhornTarget], c.variable(longhornTarget)
	if declares == nil || !target.Value.IsKnown() {
		return
	}
	is, at := tfeval.Text(target.Value), target.At()
	saves := fmt.Sprintf("saves to %q", is)
	if is == "" {
		at, saves = declares.At(), "has no backup target"
	}
	for _, s := range c.config.Stages {
		for _, d := range s.Survivors {
			// The credentials are not known yet, which is no matter here.
			values, _ := d.Values(s, config.Scope{Outputs: c.outputs()})
			want := longhorn.TargetOf(values)
			if d.Type.Name != longhorn.Type().Name || want == "" || strings.TrimRight(is, "/") == want {
				continue
			}
			what := fmt.Sprintf("%s: not where survives %q reads", longhornTarget, d.Label)
			report("data-elsewhere", at, what, "Longhorn %s, and the block in stage %s (%s) reads %q. "+
				"Change one of them.", saves, s.Name, syntax.Place(s.At()), want+"/")
		}
	}
}

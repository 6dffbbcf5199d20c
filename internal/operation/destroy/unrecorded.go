package destroy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
)

// Nothing returns why there is nothing to destroy, for a record without stages. It refuses a destroy that
// would leave machines of the cluster behind because its state does not know them, or that cannot tell: the
// keys that are recorded may be the only ones.
//
// A recorded platform has its own checks, and a selection without the platform says nothing about machines.
func Nothing(ctx context.Context, c *cluster.Cluster, o Options) (string, error) {
	all, err := RecordedStages(c)
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range all {
		asked, err := cluster.Datacenters(s.Record)
		if err != nil {
			return "", err
		}
		hasIDs := func(d cluster.Datacenter) bool { return len(d.Ids) > 0 }
		if s.Record.EndsCluster || slices.ContainsFunc(asked, hasIDs) {
			return "nothing to destroy", nil
		}
		names = append(names, s.Record.Name)
	}
	r := run.Observe(ctx, c)
	if _, err := r.LastKnownStates(); err != nil {
		return "", err
	}
	selected, _ := o.Selection.Stages(c.Config.Stages) //nolint:errcheck // only recorded stages have the name
	found, err := unrecorded.Look(ctx, r, selected)
	if err != nil {
		return "", err
	}
	if len(names) > 0 && found.NotAsked != "" {
		found.Fixes = append(found.Fixes, "if there are none, destroy what is recorded: "+
			c.Command("destroy")+" --only "+strings.Join(names, ","))
	}
	if err := found.Refusal(c, "nothing was destroyed"); err != nil {
		return "", err
	}
	looked := "castle has no datacenter to look for machines"
	if found.Endpoint != "" {
		looked = found.Endpoint + " lists no machine of it"
	}
	return fmt.Sprintf("%s records none of it, and %s; nothing to destroy", c.Place(), looked),
		found.Unproved(c)
}

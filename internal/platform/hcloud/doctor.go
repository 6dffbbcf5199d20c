package hcloud

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// Checks are doctor's: whether the API accepts the token, what else that reaches, and which names are free.
func (Platform) Checks(s platform.Subject) []finding.Check {
	p, err := open(accountOf(s.Machines.Values))
	known := err == nil && s.Machines.Values.Has("api_token")
	api := func(ctx context.Context) []finding.Finding {
		if err != nil {
			return finding.Obstacle("correct hcloud_endpoint", "%v", err)
		}
		if !known {
			const output = "it is an output of another stage, which has none yet"
			return finding.Unchecked("the API token is not known: " + cmp.Or(s.Unread, output))
		}
		switch writes, err := p.mayWrite(ctx); {
		case err == platform.ErrRefused:
			return finding.Obstacle("make a token in the project: Security > API tokens",
				"the API refuses the token")
		case err != nil:
			return finding.Obstacle("check hcloud_endpoint and the network", "%v", finding.Reason(ctx, err))
		case !writes:
			return finding.Obstacle("make one with the permission Read & Write",
				"the API token may only read")
		}
		return finding.Good("the API accepts the token, which may write")
	}
	others := func(ctx context.Context) []finding.Finding {
		if !known {
			return finding.Unchecked("the API token is not known")
		}
		return p.others(ctx, s.Cluster)
	}
	return []finding.Check{{Name: "hcloud.api", Run: api}, {Name: "hcloud.project", Run: others},
		{Name: "hcloud.names",
			Run: func(ctx context.Context) []finding.Finding { return s.Inspect(ctx, s.Machines, "free") }}}
}

// others tells which servers of the project are not the cluster's: a token has all rights to them.
func (p *project) others(ctx context.Context, cluster string) []finding.Finding {
	all, err := p.list(ctx, servers())
	if err != nil {
		return finding.Unchecked(finding.Reason(ctx, err))
	}
	all = slices.DeleteFunc(all, func(r resource) bool { return r.labels[labelCluster] == cluster })
	if len(all) == 0 {
		return finding.Good("no server in the project is another one's")
	}
	const most = 3
	text := strings.Join(xslices.Map(all[:min(most, len(all))], resource.describe), "; ")
	if len(all) > most {
		text += fmt.Sprintf("; and %d more", len(all)-most)
	}
	return finding.Warning("castle touches none of them, and whoever has the token can: give the cluster a "+
		"project of its own", "the token may change servers that are not the cluster's: %s", text)
}

package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// attempt bounds one look at all machines. A machine whose etcd does not run
// lets a call hang until its deadline.
const attempt = 5 * time.Second

func etcdType() gate.Type {
	return gate.Type{
		Name:    "talos_etcd",
		Summary: "etcd has exactly the wanted voters, no learner, one leader that all of them see, and no alarm",
		Attributes: map[string]gate.Attribute{
			"voters": {Type: cty.Number, Required: true, Valid: gate.ValidCount,
				Help: "How many voting members etcd must have: the number of control planes."},
			"endpoints": {Type: cty.List(cty.String),
				Help: "The control planes' own addresses; the talosconfig's endpoints unless given."},
		},
		Talos: true,
		New: func(name string, target gate.Target, values gate.Values) (gate.Gate, error) {
			g, err := newEtcdGate(target.Talosconfig, values)
			if err != nil {
				return gate.Gate{}, fmt.Errorf("gate %s: %w", name, err)
			}
			return gate.Gate{Name: name, Check: g.check}, nil
		},
	}
}

type etcdGate struct {
	config    *clientconfig.Config
	endpoints []string
	voters    int
	timeout   time.Duration
}

func newEtcdGate(talosconfig []byte, values gate.Values) (*etcdGate, error) {
	g := &etcdGate{voters: values.Int("voters"), timeout: attempt}
	if len(talosconfig) == 0 {
		return nil, errors.New("there is no talosconfig")
	}
	var err error
	if g.config, err = clientconfig.FromBytes(talosconfig); err != nil {
		// The file holds a key, and a decoder's error may quote the file.
		return nil, errors.New("the talosconfig is no valid YAML")
	}
	current := g.config.Contexts[g.config.Context]
	if current == nil {
		return nil, fmt.Errorf("the talosconfig has no context %q", g.config.Context)
	}
	if err := values.Decode("endpoints", &g.endpoints); err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	if len(g.endpoints) == 0 {
		g.endpoints = current.Endpoints
	}
	if len(g.endpoints) == 0 {
		g.endpoints = current.Nodes
	}
	g.endpoints = slices.Clone(g.endpoints)
	slices.Sort(g.endpoints)
	g.endpoints = slices.Compact(g.endpoints)
	if len(g.endpoints) < g.voters {
		return nil, fmt.Errorf("%d voters are wanted and %d endpoints known (%v): every control plane must be asked, so name them all in endpoints",
			g.voters, len(g.endpoints), g.endpoints)
	}
	return g, nil
}

// check asks all control planes at the same time and judges what they say.
func (g *etcdGate) check(ctx context.Context) error {
	attempt, stop := context.WithTimeout(ctx, g.timeout)
	defer stop()
	views := make([]view, len(g.endpoints))
	var all sync.WaitGroup
	for i, endpoint := range g.endpoints {
		all.Go(func() { views[i] = g.ask(attempt, endpoint) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return judge(g.voters, views)
}

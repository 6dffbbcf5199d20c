package talos

import (
	"context"
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func etcdType() gate.Type {
	return gate.Type{
		Name:    "talos_etcd",
		Summary: "etcd has exactly the wanted voters, no learner, one leader that all of them see, and no alarm",
		Attributes: map[string]gate.Attribute{
			"voters": {Type: cty.Number, Required: true, Valid: gate.ValidCount,
				Help: "How many voting members etcd must have: the number of control planes."},
			"endpoints": endpointsAttribute(),
		},
		Talos: true,
		New: func(name string, target gate.Target, values gate.Values) (gate.Gate, error) {
			g, err := newEtcdGate(target.Talosconfig, values)
			if err != nil {
				return gate.Gate{}, fmt.Errorf("gate %s: %w", name, err)
			}
			return gate.Gate{Name: name, Check: g.check, Diagnose: g.diagnose}, nil
		},
	}
}

type etcdGate struct {
	*machines
	voters int
}

func newEtcdGate(talosconfig []byte, values gate.Values) (*etcdGate, error) {
	m, err := newMachines(talosconfig, values)
	if err != nil {
		return nil, err
	}
	g := &etcdGate{machines: m, voters: values.Int("voters")}
	if len(g.endpoints) < g.voters {
		return nil, fmt.Errorf("%d voters are wanted and %d endpoints known (%v): every control plane must be asked, so name them all in endpoints",
			g.voters, len(g.endpoints), g.endpoints)
	}
	return g, nil
}

func (g *etcdGate) check(ctx context.Context) error {
	views, err := askAll(ctx, g.machines, g.askEtcd)
	if err != nil {
		return err
	}
	return judge(g.voters, views)
}

func (g *etcdGate) diagnose(ctx context.Context) gate.Diagnosis {
	return g.machines.diagnose(ctx, etcdCause)
}

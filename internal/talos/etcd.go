package talos

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func etcdType() gate.Type {
	return gate.Type{
		Name:    "talos_etcd",
		Summary: "etcd has exactly the wanted voters, no learner, one leader that all see, and no alarm",
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
	machines *machines
	voters   int
}

func newEtcdGate(talosconfig []byte, values gate.Values) (*etcdGate, error) {
	m, err := newMachines(talosconfig, values)
	if err != nil {
		return nil, err
	}
	g := &etcdGate{machines: m, voters: values.Int("voters")}
	if len(m.endpoints) < g.voters {
		return nil, fmt.Errorf("%d voters are wanted and %d endpoints known (%v): "+
			"name every control plane in endpoints", g.voters, len(m.endpoints), m.endpoints)
	}
	return g, nil
}

func (g *etcdGate) check(ctx context.Context) error {
	views, err := queryAll(ctx, g.machines, g.machines.queryEtcd)
	if err != nil {
		return err
	}
	return checkQuorum(g.voters, views)
}

func (g *etcdGate) diagnose(ctx context.Context) gate.Diagnosis {
	return g.machines.diagnose(ctx, etcdCause)
}

// etcdView is the state of etcd as one control plane reports it. A learner does
// not answer calls for members and alarms.
type etcdView struct {
	endpoint string
	problem  *problem // why the view is empty or incomplete
	status   *machineapi.EtcdMemberStatus
	members  []*machineapi.EtcdMember
	alarms   []*machineapi.EtcdMemberAlarm
}

func (m *machines) queryEtcd(ctx context.Context, endpoint string) etcdView {
	v := etcdView{endpoint: endpoint}
	v.problem = m.call(ctx, endpoint, "etcd", func(c *client.Client) error { return v.read(ctx, c) })
	return v
}

func (v *etcdView) read(ctx context.Context, c *client.Client) error {
	status, err := first(c.EtcdStatus(ctx))
	if err != nil {
		return err
	}
	v.status = status.GetMemberStatus()
	if v.status.GetIsLearner() {
		return nil
	}
	// The local member's list differs where two clusters have formed side by side.
	list, err := first(c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true}))
	if err != nil {
		return err
	}
	v.members = list.GetMembers()
	alarms, err := first(c.EtcdAlarmList(ctx))
	v.alarms = alarms.GetMemberAlarms()
	return err
}

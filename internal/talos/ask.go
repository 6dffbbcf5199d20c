package talos

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// view is what one control plane says of etcd.
type view struct {
	endpoint string
	problem  *problem // why it says nothing, or not everything
	status   *machineapi.EtcdMemberStatus
	members  []*machineapi.EtcdMember      // a learner is not asked: it may not answer
	alarms   []*machineapi.EtcdMemberAlarm // likewise
}

// askEtcd puts the questions about etcd to one machine.
func (m *machines) askEtcd(ctx context.Context, endpoint string) view {
	c, problem := m.connect(ctx, endpoint)
	if problem != nil {
		return view{endpoint: endpoint, problem: problem}
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	return m.etcdOf(ctx, c, endpoint)
}

func (m *machines) etcdOf(ctx context.Context, c *client.Client, endpoint string) view {
	v := view{endpoint: endpoint}
	explain := func(err error) *problem { return m.explain(endpoint, err, "about etcd") }
	status, err := c.EtcdStatus(ctx)
	if err != nil || len(status.GetMessages()) == 0 {
		v.problem = explain(err)
		return v
	}
	v.status = status.GetMessages()[0].GetMemberStatus()
	if v.status.GetIsLearner() {
		return v
	}
	// The local member's list: two clusters that formed side by side show in the difference.
	list, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})
	if err != nil || len(list.GetMessages()) == 0 {
		v.problem = explain(err)
		return v
	}
	v.members = list.GetMessages()[0].GetMembers()
	alarms, err := c.EtcdAlarmList(ctx)
	if err != nil || len(alarms.GetMessages()) == 0 {
		v.problem = explain(err)
		return v
	}
	v.alarms = alarms.GetMessages()[0].GetMemberAlarms()
	return v
}

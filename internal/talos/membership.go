package talos

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// leaveBound is longer than Talos tries to remove its own member.
const leaveBound = 6 * time.Minute

// ForfeitLeadership lets another etcd member lead. A member that does not lead, or is alone, changes nothing.
func (n *Node) ForfeitLeadership(ctx context.Context) error {
	return n.call(ctx, attempt, "change etcd", func(ctx context.Context, c *client.Client) error {
		_, err := c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
		if err != nil && strings.Contains(err.Error(), "only one member") {
			return nil
		}
		return err
	})
}

// LeaveEtcd removes the machine's own member and its data. Talos tries for five minutes.
func (n *Node) LeaveEtcd(ctx context.Context) error {
	return n.call(ctx, leaveBound, "change etcd", func(ctx context.Context, c *client.Client) error {
		return c.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{})
	})
}

// Member is a member of etcd.
type Member struct {
	ID      uint64
	Address string
}

// machinesAt returns the machines at these endpoints.
func machinesAt(talosconfig []byte, endpoints []string) (*machines, error) {
	m, err := newMachines(talosconfig, nil)
	if err == nil {
		m.endpoints = slices.Compact(slices.Sorted(slices.Values(endpoints)))
	}
	return m, err
}

// Members lists etcd's members as the control planes at the endpoints agree. It is an error if they do not
// agree, or if one does not answer.
func Members(ctx context.Context, talosconfig []byte, endpoints []string) ([]Member, error) {
	m, err := machinesAt(talosconfig, endpoints)
	if err != nil {
		return nil, err
	}
	nodes, err := m.queryNodes(ctx, "etcd", readEtcd)
	if err != nil {
		return nil, err
	}
	problems, differ := problemsOf(nodes), memberDisagreement(nodes, memberNames(nodes))
	listing := slices.IndexFunc(nodes, func(n nodeView) bool { return len(n.members) > 0 })
	if len(problems)+len(differ) > 0 || listing < 0 {
		return nil, notReady("etcd's members are not known", problems, differ...)
	}
	return xslices.Map(nodes[listing].members,
		func(e *machineapi.EtcdMember) Member { return Member{ID: e.GetId(), Address: peerHost(e)} }), nil
}

// RemoveMember removes the member of a machine that is gone. It is no error if there is none.
func RemoveMember(ctx context.Context, talosconfig []byte, endpoint string, id uint64) error {
	n, err := OpenNode(talosconfig, endpoint)
	if err != nil {
		return err
	}
	return n.call(ctx, attempt, "change etcd", func(ctx context.Context, c *client.Client) error {
		err := c.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return err
	})
}

// EtcdHealthy returns nil if etcd has the wanted voters and no others, all of them serve, all follow one
// leader, and there is no alarm and no learner. The error says what is not so.
func EtcdHealthy(ctx context.Context, talosconfig []byte, endpoints []string, voters int) error {
	m, err := machinesAt(talosconfig, endpoints)
	if err != nil {
		return err
	}
	return m.checkQuorum(ctx, voters)
}

// HolderOf returns the address of the control plane that has the virtual address; empty if none has it now.
func HolderOf(ctx context.Context, talosconfig []byte, endpoints []string, vip string) (string, error) {
	virtual, err := netip.ParseAddr(vip)
	if err != nil {
		return "", fmt.Errorf("virtual address %s: %w", vip, err)
	}
	m, err := machinesAt(talosconfig, endpoints)
	if err != nil {
		return "", err
	}
	nodes, err := m.queryNodes(ctx, "addresses", readAddresses)
	if err != nil {
		return "", err
	}
	for _, n := range nodes {
		if n.linkWith(virtual) != "" {
			return n.host(), nil
		}
	}
	if problems := problemsOf(nodes); len(problems) > 0 {
		return "", notReady(fmt.Sprintf("virtual address %s: its holder is not known", vip), problems)
	}
	return "", nil
}

package talos

import (
	"context"
	"fmt"
	"io"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// Etcd is what a control plane has of etcd.
type Etcd int

// The states of a control plane's etcd.
const (
	EtcdUnknown Etcd = iota // the machine does not answer, or not about etcd
	EtcdBlank               // it has no data: etcd waits for a bootstrap, or the machine for a configuration
	EtcdAlone               // it has data, and follows no leader, or does not run
	EtcdServes              // it follows a leader: there is a quorum
)

// Etcd reads what the machine has of etcd. The error says why it is unknown.
func (n *Node) Etcd(ctx context.Context) (Etcd, error) {
	bounded, stop := context.WithTimeout(ctx, attempt)
	defer stop()
	view := n.machines.queryEtcdData(bounded, n.address)
	switch {
	case ctx.Err() != nil:
		return EtcdUnknown, context.Cause(ctx)
	case view.problem != nil:
		return EtcdUnknown, fmt.Errorf("machine %s: %s", hostOf(n.address), view.problem.reason)
	case !view.hasEtcdData:
		return EtcdBlank, nil
	}
	var member EtcdMember
	p := n.machines.call(bounded, n.address, "etcd", func(c *client.Client) (err error) {
		member, err = readMember(bounded, c)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return EtcdUnknown, context.Cause(ctx)
	case p != nil && p.kind != etcdDown: // it may well serve
		return EtcdUnknown, fmt.Errorf("machine %s: %s", hostOf(n.address), p.reason)
	case member.Leader:
		return EtcdServes, nil
	}
	return EtcdAlone, nil
}

// EtcdService describes the service of etcd on the machine: "Preparing: Running pre state".
func (n *Node) EtcdService(ctx context.Context) (text string, err error) {
	err = n.call(ctx, attempt, "read services", func(ctx context.Context, c *client.Client) error {
		found, err := c.ServiceInfo(ctx, "etcd")
		for _, one := range found {
			text = one.Service.GetState() + ": " + lastEvent(one.Service)
		}
		return err
	})
	return text, err
}

// WipeEtcd empties the partition that holds etcd's data, images and the data of Pods, and restarts the
// machine. Its configuration and its other disks stay. It does not leave etcd: there is no quorum to do so.
func (n *Node) WipeEtcd(ctx context.Context) error {
	return n.call(ctx, attempt, "reset it", func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machineapi.ResetRequest{Reboot: true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
				{Label: constants.EphemeralPartitionLabel, Wipe: true}}})
	})
}

// RecoverEtcd uploads a snapshot to a machine whose etcd is blank, and bootstraps etcd from it: with one
// member, this one. Talos checks the snapshot only when etcd starts, and tells it in the service's state.
func (n *Node) RecoverEtcd(ctx context.Context, snapshot io.Reader) error {
	return n.call(ctx, snapshotBound, "recover etcd", func(ctx context.Context, c *client.Client) error {
		if _, err := c.EtcdRecover(ctx, snapshot); err != nil {
			return err
		}
		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true})
	})
}

//go:build integration

package main

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/rogpeppe/go-internal/testscript"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// TestLabReleases rehearses the cluster mini and upgrades Talos and Kubernetes.
func TestLabReleases(t *testing.T) {
	scripts(t, "mini", "testdata/lab-releases")
}

// TestLabOlder does so where castle does less: an older Talos, and somebody else who upgrades.
func TestLabOlder(t *testing.T) {
	scripts(t, "mini", "testdata/lab-older")
}

// TestLabLeaving rehearses the cluster mini and removes machines, with and without their nodes.
func TestLabLeaving(t *testing.T) {
	scripts(t, "mini", "testdata/lab-leaving")
}

// TestLabHarm rehearses the cluster mini and makes changes that a running machine would notice.
func TestLabHarm(t *testing.T) {
	scripts(t, "mini", "testdata/lab-harm")
}

// TestLabHardware rehearses the cluster mini and rolls other hardware out.
func TestLabHardware(t *testing.T) {
	scripts(t, "mini", "testdata/lab-hardware")
}

// TestLabRollout rehearses the cluster mini and rolls changes out while machines are down.
func TestLabRollout(t *testing.T) {
	scripts(t, "mini", "testdata/lab-rollout")
}

// TestLabReplicas rolls changes out while Longhorn's replicas keep machines where they are.
func TestLabReplicas(t *testing.T) {
	scripts(t, "mini", "testdata/lab-replicas")
}

// TestLabCredentials rehearses the cluster mini and renews its credentials.
func TestLabCredentials(t *testing.T) {
	scripts(t, "mini", "testdata/lab-credentials")
}

// TestLabFailed does so where a machine cannot boot the new Talos.
func TestLabFailed(t *testing.T) {
	scripts(t, "mini", "testdata/lab-failed", "--fault", "upgrade-fails=worker-01")
}

// TestLabBlocked rolls a change out while a budget, a degraded volume and a last replica keep machines.
func TestLabBlocked(t *testing.T) {
	scripts(t, "mini", "testdata/lab-blocked", "--fault", "drain-blocked=20s",
		"--fault", "volume-degraded=20s", "--fault", "replica-last=worker-01")
}

// TestLabDead does so while a machine dies.
func TestLabDead(t *testing.T) {
	scripts(t, "mini", "testdata/lab-dead", "--fault", "node-dead=worker-01")
}

// TestLabLost loses all control planes with their disks as soon as etcd is backed up.
func TestLabLost(t *testing.T) {
	scripts(t, "mini", "testdata/lab-lost", "--fault", "control-planes-lost=1")
}

// TestLabTaken creates a cluster of which a VM id and a secret exist already.
func TestLabTaken(t *testing.T) {
	scripts(t, "mini", "testdata/lab-taken", "--fault", "ghost-vm=442",
		"--fault", "infisical-secret-exists=1")
}

// TestLabRestore backs etcd up, loses the control plane, and restores it.
func TestLabRestore(t *testing.T) {
	scripts(t, "mini", "testdata/lab-restore", "--fault", "etcd-full=1", "--fault", "snapshot-cut=1")
}

// defragment does what `talosctl -n ADDRESS etcd defrag` does.
func defragment(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: defragment ADDRESS")
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	c := talosOf(ctx, ts, args[0])
	defer c.Close() //nolint:errcheck // it has answered
	_, err := c.EtcdDefragment(ctx)
	ts.Check(err)
}

// upgradeKubernetes does to one machine what talosctl upgrade-k8s does: its configuration gets the images of
// another release, at once. Its arguments are the machine's address and the two releases.
func upgradeKubernetes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: upgrade-kubernetes ADDRESS FROM TO")
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	c := talosOf(ctx, ts, args[0])
	defer c.Close() //nolint:errcheck // it has answered
	active, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.ActiveID)
	ts.Check(err)
	text, err := active.Provider().Bytes()
	ts.Check(err)
	_, err = c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
		Data: bytes.ReplaceAll(text, []byte(":v"+args[1]), []byte(":v"+args[2])),
		Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	ts.Check(err)
}

// talosOf connects to the machine of mini at an address.
func talosOf(ctx context.Context, ts *testscript.TestScript, address string) *client.Client {
	file := filepath.Join(ts.Getenv("CASTLE_STATE_DIR"), "mini", "proxmox", "talosconfig")
	c, err := client.New(ctx, client.WithConfigFromFile(file), client.WithEndpoints(address))
	ts.Check(err)
	return c
}

// upgrade does what `talosctl -n ADDRESS upgrade --image IMAGE` does.
func upgrade(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: upgrade ADDRESS IMAGE")
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	c := talosOf(ctx, ts, args[0])
	defer c.Close() //nolint:errcheck // it has answered
	//lint:ignore SA1019 talosctl calls it for machines before v1.13, and they still know it
	_, err := c.MachineClient.Upgrade(ctx, &machineapi.UpgradeRequest{Image: args[1]})
	ts.Check(err)
}

//go:build integration

package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// TestLabNodes rehearses the cluster mini and changes its nodes and their releases.
func TestLabNodes(t *testing.T) {
	scripts(t, "mini", "testdata/lab-nodes")
}

// upgrade does what `talosctl -n ADDRESS upgrade --image IMAGE` does.
func upgrade(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: upgrade ADDRESS IMAGE")
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	file := filepath.Join(ts.Getenv("CASTLE_STATE_DIR"), "mini", "proxmox", "talosconfig")
	c, err := client.New(ctx, client.WithConfigFromFile(file), client.WithEndpoints(args[0]))
	ts.Check(err)
	defer c.Close() //nolint:errcheck // it has answered
	//lint:ignore SA1019 talosctl calls it for machines before v1.13, and they still know it
	_, err = c.MachineClient.Upgrade(ctx, &machineapi.UpgradeRequest{Image: args[1]})
	ts.Check(err)
}

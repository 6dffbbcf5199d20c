package talos

import (
	"context"
	"crypto/tls"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// onDestroy configures the fate of the machine when its configuration is destroyed: nothing happens
// unless reset is true.
func onDestroy() plugin.Attribute {
	flag := func(or bool) plugin.Attribute {
		return plugin.Attribute{Type: cty.Bool, Optional: true, Computed: true, Default: cty.BoolVal(or)}
	}
	return object(optionalText(), map[string]plugin.Attribute{"reset": flag(false), "graceful": flag(true),
		"reboot": flag(false)})
}

// resetMachine wipes Talos' own partitions, once: the real provider does not retry either. It waits
// for a machine that reboots until the machine accepts a connection.
func resetMachine(ctx context.Context, state plugin.Values) error {
	wanted := state.Object("on_destroy")
	if !wanted.Bool("reset") {
		return nil
	}
	limit, err := timeout(state, "delete")
	if err != nil {
		return err
	}
	config, err := clientConfig("dynamic", state)
	if err != nil {
		return problem("Error converting config to talos client config", err)
	}
	endpoint, node := state.String("endpoint"), state.String("node")
	err = attempt(ctx, config, endpoint, node, func(ctx context.Context, to *client.Client) error {
		return to.ResetGeneric(ctx, &machineapi.ResetRequest{
			Graceful: wanted.Bool("graceful"), Reboot: wanted.Bool("reboot"),
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "STATE", Wipe: true},
				{Label: "EPHEMERAL", Wipe: true}},
		})
	})
	if err == nil && wanted.Bool("reboot") {
		err = repeat(ctx, limit, func(ctx context.Context) error { return unconfigured(ctx, endpoint, node) })
	}
	if err != nil {
		return problem("Error resetting machine", err)
	}
	return nil
}

// unconfigured is nil if the machine is in maintenance mode.
func unconfigured(ctx context.Context, endpoint, node string) error {
	//nolint:gosec // maintenance mode serves a self-signed certificate
	c, err := client.New(ctx, client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}),
		client.WithEndpoints(endpoint))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing was written
	_, err = c.Disks(client.WithNode(ctx, node))
	return err
}

package talos

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func bootstrap() plugin.Resource {
	return plugin.Resource{
		Version: 1,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"id":                   keptID(),
			"node":                 requiredText(),
			"endpoint":             eitherText(),
			"client_configuration": access(requiredText()),
			"timeouts":             timeouts("create"),
		}},
		Plan: func(_ context.Context, p *plugin.Plan) error {
			planEndpoint(p)
			return nil
		},
		Create: bootstrapMachine,
		// A cluster is bootstrapped once; an update only changes the state.
		Update: func(context.Context, plugin.Change) (plugin.Values, error) { return plugin.Values{}, nil },
		Import: func(context.Context, string) (plugin.Values, error) {
			return plugin.Values{"id": cty.StringVal("machine_bootstrap")}, nil
		},
	}
}

func bootstrapMachine(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	limit, err := timeout(c.Planned, "create")
	if err != nil {
		return nil, err
	}
	err = call(ctx, c.Planned, limit, func(ctx context.Context, to *client.Client) error {
		return to.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	})
	if err != nil {
		return nil, problem("Error bootstrapping node", err)
	}
	return plugin.Values{"id": cty.StringVal("machine_bootstrap")}, nil
}

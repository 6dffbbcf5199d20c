package talos

import (
	"context"
	"fmt"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func configurationApply() plugin.Resource {
	mode := eitherText()
	mode.Default, mode.Valid = cty.StringVal("auto"), validMode
	return plugin.Resource{
		Version: 1,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"id":                          keptID(),
			"apply_mode":                  mode,
			"resolved_apply_mode":         computedText(),
			"node":                        requiredText(),
			"endpoint":                    eitherText(),
			"client_configuration":        access(requiredText()),
			"machine_configuration_input": secret(requiredText()),
			"machine_configuration":       secret(computedText()),
			"config_patches":              {Type: cty.List(cty.String), Optional: true},
			"on_destroy":                  onDestroy(),
			"timeouts":                    timeouts("create", "update", "delete"),
		}},
		Plan: planApply,
		Create: func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
			return applyConfiguration(ctx, c, "create")
		},
		Update: func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
			return applyConfiguration(ctx, c, "update")
		},
		Delete: resetMachine,
	}
}

func validMode(x cty.Value) error {
	switch x.AsString() {
	case "auto", "reboot", "no_reboot", "staged":
		return nil
	}
	return &plugin.Problem{Summary: "Invalid Attribute Value Match",
		Detail: fmt.Sprintf(`Attribute apply_mode value must be one of: ["auto" "reboot" "no_reboot" `+
			`"staged"], got: %q`, x.AsString())}
}

// planApply shows the whole machine configuration in the plan, if it is known.
func planApply(_ context.Context, p *plugin.Plan) error {
	planEndpoint(p)
	p.Change.Planned["resolved_apply_mode"] = p.Change.Planned["apply_mode"]
	if p.Change.Config.Unknown("machine_configuration_input") || p.Change.Config.Unknown("config_patches") {
		return nil
	}
	patches, err := configpatcher.LoadPatches(p.Change.Config.Strings("config_patches"))
	if err != nil {
		return problem("Error loading config patches", err)
	}
	patched, err := configpatcher.Apply(
		configpatcher.WithBytes([]byte(p.Change.Config.String("machine_configuration_input"))), patches)
	if err != nil {
		return problem("Error applying config patches", err)
	}
	content, err := patched.Bytes()
	if err != nil {
		return problem("Error converting config to bytes", err)
	}
	p.Change.Planned["machine_configuration"] = cty.StringVal(string(content))
	return nil
}

func applyConfiguration(ctx context.Context, c plugin.Change, operation string) (plugin.Values, error) {
	limit, err := timeout(c.Planned, operation)
	if err != nil {
		return nil, err
	}
	mode := machineapi.ApplyConfigurationRequest_Mode_value[strings.ToUpper(c.Planned.String("apply_mode"))]
	err = call(ctx, c.Planned, limit, func(ctx context.Context, to *client.Client) error {
		_, err := to.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Mode: machineapi.ApplyConfigurationRequest_Mode(mode),
			Data: []byte(c.Planned.String("machine_configuration")),
		})
		return err
	})
	if err != nil {
		return nil, problem("Error applying configuration", err)
	}
	return plugin.Values{"id": cty.StringVal("machine_configuration_apply")}, nil
}

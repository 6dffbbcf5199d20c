package talos

import (
	"context"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func clientConfiguration() plugin.DataSource {
	return plugin.DataSource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"id":                   computedText(),
			"cluster_name":         requiredText(),
			"client_configuration": access(requiredText()),
			"endpoints":            {Type: cty.List(cty.String), Optional: true},
			"nodes":                {Type: cty.List(cty.String), Optional: true},
			"talos_config":         secret(computedText()),
		}},
		Read: readClientConfiguration,
	}
}

func readClientConfiguration(_ context.Context, config plugin.Values) (plugin.Values, error) {
	name := config.String("cluster_name")
	talosconfig, err := clientConfig(name, config)
	if err != nil {
		return nil, problem("failed to generate talos config", err)
	}
	c := talosconfig.Contexts[name]
	c.Endpoints, c.Nodes = config.Strings("endpoints"), config.Strings("nodes")
	content, err := talosconfig.Bytes()
	if err != nil {
		return nil, problem("failed to generate talos config", err)
	}
	return plugin.Values{"id": cty.StringVal(name), "talos_config": cty.StringVal(string(content))}, nil
}

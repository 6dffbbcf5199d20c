package infisical

import (
	"context"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func (p *provider) secrets() plugin.DataSource {
	return plugin.DataSource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"env_slug":     {Type: cty.String, Required: true},
			"folder_path":  {Type: cty.String, Required: true},
			"workspace_id": {Type: cty.String, Optional: true, Computed: true},
			"secrets": {Computed: true,
				Nested: &plugin.Nested{Mode: plugin.Map, Attributes: map[string]plugin.Attribute{
					"value":       {Type: cty.String, Computed: true, Sensitive: true},
					"comment":     {Type: cty.String, Computed: true},
					"secret_type": {Type: cty.String, Computed: true},
				}}},
		}},
		Read: p.readSecrets,
	}
}

func (p *provider) readSecrets(ctx context.Context, config plugin.Values) (plugin.Values, error) {
	found, err := p.client.list(ctx, folder(config))
	if err != nil {
		return nil, &plugin.Problem{Summary: "Something went wrong while fetching secrets",
			Detail: "If the error is not clear, please get in touch at infisical.com/slack\n\n" +
				"Infisical Client Error: " + err.Error()}
	}
	all := map[string]cty.Value{}
	for _, s := range found {
		all[s.SecretKey] = cty.ObjectVal(map[string]cty.Value{
			"value": cty.StringVal(s.SecretValue), "comment": cty.StringVal(s.SecretComment),
			"secret_type": cty.StringVal(s.Type),
		})
	}
	secrets := cty.MapValEmpty(cty.EmptyObject)
	if len(all) > 0 {
		secrets = cty.MapVal(all)
	}
	return plugin.Values{"secrets": secrets}, nil
}

func folder(v plugin.Values) where {
	return where{workspace: v.String("workspace_id"), environment: v.String("env_slug"),
		path: v.String("folder_path")}
}

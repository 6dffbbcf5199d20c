package vault

import (
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func (p *provider) policy() plugin.Resource {
	return p.resource(object{
		attributes: map[string]plugin.Attribute{
			"name":   {Type: cty.String, Required: true, Replace: true},
			"policy": {Type: cty.String, Required: true},
		},
		fields: []string{"policy"},
		path:   func(v plugin.Values) string { return "sys/policies/acl/" + v.String("name") },
	})
}

package helm

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

const longestName = 53

func (p *provider) release() plugin.Resource {
	name := plugin.Attribute{Type: cty.String, Required: true, Replace: true, Valid: validName}
	text := plugin.Attribute{Type: cty.String, Optional: true}
	computed := plugin.Attribute{Type: cty.String, Computed: true}
	flag := func(otherwise cty.Value) plugin.Attribute {
		return plugin.Attribute{Type: cty.Bool, Optional: true, Computed: true, Default: otherwise}
	}
	number := func(otherwise int64) plugin.Attribute {
		return plugin.Attribute{Type: cty.Number, Optional: true, Computed: true,
			Default: cty.NumberIntVal(otherwise)}
	}
	return plugin.Resource{
		Version: 2,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"name": name,
			"namespace": {Type: cty.String, Optional: true, Computed: true,
				Default: cty.StringVal("default"), Replace: true},
			"repository":                 text,
			"chart":                      {Type: cty.String, Required: true},
			"version":                    {Type: cty.String, Optional: true, Computed: true},
			"values":                     {Type: cty.List(cty.String), Optional: true},
			"set":                        setAttribute(),
			"set_list":                   setListAttribute(),
			"set_sensitive":              setSensitiveAttribute(),
			"create_namespace":           flag(cty.False),
			"wait":                       flag(cty.True),
			"wait_for_jobs":              flag(cty.False),
			"timeout":                    number(300),
			"atomic":                     flag(cty.False),
			"cleanup_on_fail":            flag(cty.False),
			"disable_openapi_validation": flag(cty.False),
			"disable_webhooks":           flag(cty.False),
			"force_update":               flag(cty.False),
			"max_history":                number(0),
			"render_subchart_notes":      flag(cty.True),
			"replace":                    flag(cty.False),
			"reset_values":               flag(cty.False),
			"reuse_values":               flag(cty.False),
			"skip_crds":                  flag(cty.False),
			"take_ownership":             flag(cty.False),
			"upgrade_install":            flag(cty.False),
			"repository_ca_file":         text,
			"repository_cert_file":       text,
			"repository_key_file":        text,
			"repository_username":        text,
			"repository_password":        {Type: cty.String, Optional: true, Sensitive: true},
			"timeouts": {Optional: true,
				Nested: &plugin.Nested{Mode: plugin.Single, Attributes: map[string]plugin.Attribute{
					"create": text, "read": text, "update": text, "delete": text,
				}}},
			"id":        computed,
			"status":    computed,
			"manifest":  computed,
			"resources": {Type: cty.Map(cty.String), Computed: true},
			"metadata":  metadataAttribute(),
		}},
		Plan:   p.planRelease,
		Create: p.createRelease,
		Read:   p.readRelease,
		Update: p.updateRelease,
		Delete: p.deleteRelease,
		Import: p.importRelease,
	}
}

func validName(x cty.Value) error {
	if n := len(x.AsString()); n < 1 || n > longestName {
		return &plugin.Problem{Summary: "Invalid Attribute Value Length",
			Detail: fmt.Sprintf("Attribute name string length must be between 1 and %d, got: %d",
				longestName, n)}
	}
	return nil
}

func list(attributes map[string]plugin.Attribute) plugin.Attribute {
	return plugin.Attribute{Optional: true, Nested: &plugin.Nested{Mode: plugin.List, Attributes: attributes}}
}

func setAttribute() plugin.Attribute {
	return list(map[string]plugin.Attribute{
		"name":  {Type: cty.String, Required: true},
		"value": {Type: cty.String, Optional: true},
		"type":  {Type: cty.String, Optional: true, Computed: true, Default: cty.StringVal("")},
	})
}

func setListAttribute() plugin.Attribute {
	return list(map[string]plugin.Attribute{
		"name":  {Type: cty.String, Required: true},
		"value": {Type: cty.List(cty.String), Required: true},
	})
}

func setSensitiveAttribute() plugin.Attribute {
	return list(map[string]plugin.Attribute{
		"name":  {Type: cty.String, Required: true},
		"value": {Type: cty.String, Required: true, Sensitive: true},
		"type":  {Type: cty.String, Optional: true},
	})
}

func metadataAttribute() plugin.Attribute {
	all := map[string]plugin.Attribute{}
	for _, name := range []string{"app_version", "chart", "name", "namespace", "notes", "values", "version"} {
		all[name] = plugin.Attribute{Type: cty.String, Computed: true}
	}
	for _, name := range []string{"first_deployed", "last_deployed", "revision"} {
		all[name] = plugin.Attribute{Type: cty.Number, Computed: true}
	}
	return plugin.Attribute{Computed: true, Nested: &plugin.Nested{Mode: plugin.Single, Attributes: all}}
}

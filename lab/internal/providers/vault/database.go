package vault

import (
	"encoding/json"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

const postgresPlugin = "postgresql-database-plugin"

// connection stands in for PostgreSQL's only.
func (p *provider) connection() plugin.Resource {
	text := plugin.Attribute{Type: cty.String, Optional: true}
	number := plugin.Attribute{Type: cty.Number, Optional: true}
	list := plugin.Attribute{Type: cty.List(cty.String), Optional: true}
	r := p.resource(object{
		attributes: map[string]plugin.Attribute{
			"name":                     {Type: cty.String, Required: true, Replace: true},
			"backend":                  {Type: cty.String, Required: true, Replace: true},
			"plugin_name":              {Type: cty.String, Optional: true, Computed: true, Keep: true},
			"verify_connection":        {Type: cty.Bool, Optional: true, Default: cty.True},
			"allowed_roles":            list,
			"root_rotation_statements": list,
			"password_policy":          text,
		},
		fields: []string{"allowed_roles", "password_policy"},
		path:   func(v plugin.Values) string { return v.String("backend") + "/config/" + v.String("name") },
		write: func(c plugin.Change, body map[string]any) {
			body["plugin_name"], body["verify_connection"] = postgresPlugin,
				c.Planned.Bool("verify_connection")
			if c.Planned.Known("root_rotation_statements") {
				body["root_rotation_statements"] = c.Planned.Strings("root_rotation_statements")
			}
			before := plugin.Values{}
			if blocks := c.Prior.Objects("postgresql"); len(blocks) > 0 {
				before = blocks[0]
			}
			for _, block := range c.Planned.Objects("postgresql") {
				for _, name := range []string{"connection_url", "username", "username_template",
					"password_authentication"} {
					if block.Known(name) {
						body[name] = block.String(name)
					}
				}
				for _, name := range []string{"max_open_connections", "max_idle_connections",
					"max_connection_lifetime"} {
					if block.Known(name) {
						body[name] = block.Int(name)
					}
				}
				body["disable_escaping"] = block.Bool("disable_escaping")
				// Vault may have rotated it: it is sent only when it is another one here.
				if password := block.String("password"); password != before.String("password") {
					body["password"] = password
				}
			}
		},
		read: readConnection,
	})
	r.Schema.Blocks = map[string]plugin.NestedBlock{"postgresql": {Mode: plugin.List, Max: 1,
		Block: plugin.Block{Attributes: map[string]plugin.Attribute{
			"connection_url": text, "username": text, "username_template": text,
			"password":                {Type: cty.String, Optional: true, Sensitive: true},
			"password_authentication": {Type: cty.String, Optional: true, Default: cty.StringVal("password")},
			"max_open_connections":    {Type: cty.Number, Optional: true, Default: cty.NumberIntVal(2)},
			"max_idle_connections":    number, "max_connection_lifetime": number,
			"disable_escaping": {Type: cty.Bool, Optional: true, Default: cty.False},
		}}}}
	return r
}

// readConnection detects drift, except in the password, which Vault does not return, and in the
// URL, which Vault returns in another form.
func readConnection(data map[string]json.RawMessage, state, found plugin.Values) error {
	found["plugin_name"] = cty.StringVal(postgresPlugin)
	var details struct {
		Username string `json:"username"`
	}
	if err := json.Unmarshal(data["connection_details"], &details); err != nil {
		return err
	}
	var blocks []cty.Value
	for _, block := range state.Objects("postgresql") {
		now := plugin.Values{}
		for name, x := range block {
			now[name] = x
		}
		now["username"] = plugin.Text(details.Username)
		blocks = append(blocks, plugin.Object(now))
	}
	if len(blocks) > 0 {
		found["postgresql"] = cty.ListVal(blocks)
	}
	return nil
}

func (p *provider) databaseRole() plugin.Resource {
	number := plugin.Attribute{Type: cty.Number, Optional: true}
	list := plugin.Attribute{Type: cty.List(cty.String), Optional: true}
	name := plugin.Attribute{Type: cty.String, Required: true, Replace: true}
	return p.resource(object{
		attributes: map[string]plugin.Attribute{
			"name": name, "backend": name, "db_name": name,
			"creation_statements":   {Type: cty.List(cty.String), Required: true},
			"revocation_statements": list, "rollback_statements": list, "renew_statements": list,
			"default_ttl": number, "max_ttl": number,
			"credential_type": {Type: cty.String, Optional: true, Computed: true, Keep: true},
		},
		fields: []string{"db_name", "creation_statements", "revocation_statements", "rollback_statements",
			"renew_statements", "default_ttl", "max_ttl", "credential_type"},
		path: func(v plugin.Values) string { return v.String("backend") + "/roles/" + v.String("name") },
	})
}

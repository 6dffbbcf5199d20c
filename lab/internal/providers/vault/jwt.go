package vault

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func (p *provider) jwt() plugin.Resource {
	text := plugin.Attribute{Type: cty.String, Optional: true}
	list := plugin.Attribute{Type: cty.List(cty.String), Optional: true}
	fields := []string{"jwt_validation_pubkeys", "bound_issuer", "default_role", "jwt_supported_algs",
		"namespace_in_state", "oidc_discovery_url", "oidc_discovery_ca_pem", "jwks_url", "jwks_ca_pem"}
	o := object{fields: fields, attributes: map[string]plugin.Attribute{
		"path": {Type: cty.String, Optional: true, Default: cty.StringVal("jwt")},
		"type": {Type: cty.String, Optional: true, Default: cty.StringVal("jwt"),
			Replace: true},
		"jwt_validation_pubkeys": list, "jwt_supported_algs": list,
		"bound_issuer": text, "default_role": text, "oidc_discovery_url": text, "oidc_discovery_ca_pem": text,
		"jwks_url": text, "jwks_ca_pem": text,
		"namespace_in_state": {Type: cty.Bool, Optional: true, Default: cty.True},
		"local":              {Type: cty.Bool, Optional: true, Default: cty.False, Replace: true},
		"accessor":           {Type: cty.String, Computed: true, Keep: true},
	}}
	o.path = func(v plugin.Values) string { return "auth/" + v.String("path") + "/config" }
	r := p.resource(o)
	r.Version = 1
	config, read := r.Update, r.Read
	r.Update = func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
		if c.Prior != nil && c.Prior.String("path") != c.Planned.String("path") {
			return nil, errMoved
		}
		v, err := config(ctx, c)
		if v != nil {
			v["id"] = c.Planned["path"]
		}
		return v, err
	}
	r.Create = func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
		path := c.Planned.String("path")
		body := map[string]any{"type": c.Planned.String("type"), "local": c.Planned.Bool("local")}
		if err := p.client.call(ctx, http.MethodPost, "sys/auth/"+path, body, nil); err != nil {
			return nil, &plugin.Problem{Summary: "error writing to Vault: " + err.Error()}
		}
		v, err := r.Update(ctx, c)
		if v == nil { // it is mounted, so it is in the state
			v = maps.Clone(c.Planned)
			v["id"] = c.Planned["path"]
		}
		m, listed := p.client.mountAt(ctx, "sys/auth", path)
		if v["accessor"] = cty.StringVal(""); listed == nil && m != nil {
			v["accessor"] = cty.StringVal(m.Accessor)
		}
		return v, err
	}
	r.Read = func(ctx context.Context, state plugin.Values) (plugin.Values, error) {
		m, err := p.client.mountAt(ctx, "sys/auth", state.String("path"))
		if m == nil || err != nil {
			return nil, err
		}
		v, err := read(ctx, state)
		if v != nil {
			v["type"], v["accessor"] = cty.StringVal(m.Type), cty.StringVal(m.Accessor)
		}
		return v, err
	}
	r.Delete = func(ctx context.Context, state plugin.Values) error {
		if err := p.client.delete(ctx, "sys/auth/"+state.String("path")); err != nil {
			return &plugin.Problem{Summary: "error disabling auth from Vault: " + err.Error()}
		}
		return nil
	}
	return r
}

func (p *provider) jwtRole() plugin.Resource {
	text := plugin.Attribute{Type: cty.String, Optional: true}
	set := plugin.Attribute{Type: cty.Set(cty.String), Optional: true}
	number := plugin.Attribute{Type: cty.Number, Optional: true}
	leeway := plugin.Attribute{Type: cty.Number, Optional: true, Default: cty.NumberIntVal(0)}
	computed := plugin.Attribute{Type: cty.String, Optional: true, Computed: true, Keep: true}
	kind := computed
	kind.Replace = true
	return p.resource(object{
		attributes: map[string]plugin.Attribute{
			"backend":   {Type: cty.String, Optional: true, Default: cty.StringVal("jwt"), Replace: true},
			"role_name": {Type: cty.String, Required: true, Replace: true},
			"role_type": kind, "bound_claims_type": computed,
			"user_claim":      {Type: cty.String, Required: true},
			"bound_audiences": set, "bound_subject": text, "groups_claim": text,
			"bound_claims":      {Type: cty.Map(cty.String), Optional: true},
			"claim_mappings":    {Type: cty.Map(cty.String), Optional: true},
			"clock_skew_leeway": leeway, "expiration_leeway": leeway, "not_before_leeway": leeway,
			"token_policies": set, "token_type": text,
			"token_no_default_policy": {Type: cty.Bool, Optional: true},
			"token_ttl":               number, "token_max_ttl": number, "token_period": number,
			"token_num_uses": number, "token_explicit_max_ttl": number,
		},
		fields: []string{"role_type", "bound_claims_type", "user_claim", "bound_audiences", "bound_subject",
			"groups_claim", "claim_mappings",
			"clock_skew_leeway", "expiration_leeway", "not_before_leeway", "token_policies",
			"token_no_default_policy",
			"token_ttl", "token_max_ttl", "token_period", "token_num_uses", "token_explicit_max_ttl"},
		path: func(v plugin.Values) string {
			return "auth/" + v.String("backend") + "/role/" + v.String("role_name")
		},
		// Several values of one claim stand in one string here and in a list there.
		write: func(c plugin.Change, body map[string]any) {
			claims := map[string][]string{}
			for name, values := range c.Planned.Map("bound_claims") {
				for one := range strings.SplitSeq(values, ",") {
					claims[name] = append(claims[name], strings.TrimSpace(one))
				}
			}
			body["bound_claims"] = claims
			if c.Planned.Known("token_type") {
				body["token_type"] = c.Planned.String("token_type")
			}
		},
		read: func(data map[string]json.RawMessage, state, found plugin.Values) error {
			var claims map[string][]string
			if err := json.Unmarshal(data["bound_claims"], &claims); err != nil {
				return err
			}
			if len(claims) == 0 && !state.Known("bound_claims") {
				return nil
			}
			joined := map[string]string{}
			for name, values := range claims {
				joined[name] = strings.Join(values, ",")
			}
			found["bound_claims"] = plugin.StringMap(joined)
			return nil
		},
	})
}

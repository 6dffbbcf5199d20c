package vault

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// mounted is an engine or an auth method as Vault lists it.
type mounted struct {
	Type     string            `json:"type"`
	Accessor string            `json:"accessor"`
	Local    bool              `json:"local"`
	Options  map[string]string `json:"options"`
	Config   struct {
		DefaultLeaseTTL int64 `json:"default_lease_ttl"`
		MaxLeaseTTL     int64 `json:"max_lease_ttl"`
	} `json:"config"`
}

// mountAt returns the mount at a path; kind is sys/mounts or sys/auth.
func (c *client) mountAt(ctx context.Context, kind, path string) (*mounted, error) {
	data, err := c.read(ctx, kind)
	if err != nil {
		return nil, &plugin.Problem{Summary: "error reading from Vault: " + err.Error()}
	}
	raw, ok := data[path+"/"]
	if !ok {
		return nil, nil
	}
	m := &mounted{}
	return m, json.Unmarshal(raw, m)
}

// errMoved is where the stand-in ends: the real provider moves a mount.
var errMoved = &plugin.Problem{
	Summary: "the stand-in for hashicorp/vault cannot move a mount to another path",
}

func (p *provider) mount() plugin.Resource {
	ttl := plugin.Attribute{Type: cty.Number, Optional: true, Computed: true, Keep: true}
	return plugin.Resource{
		Legacy: true,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"path":                      {Type: cty.String, Required: true},
			"type":                      {Type: cty.String, Required: true, Replace: true},
			"default_lease_ttl_seconds": ttl,
			"max_lease_ttl_seconds":     ttl,
			"options":                   {Type: cty.Map(cty.String), Optional: true},
			"local":                     {Type: cty.Bool, Optional: true, Replace: true},
			"accessor":                  {Type: cty.String, Computed: true, Keep: true},
			"id":                        {Type: cty.String, Optional: true, Computed: true, Keep: true},
		}},
		Create: func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
			body := map[string]any{"type": c.Planned.String("type"), "local": c.Planned.Bool("local"),
				"options": c.Planned.Map("options"), "config": leases(c.Planned)}
			if err := p.client.call(ctx, http.MethodPost, "sys/mounts/"+c.Planned.String("path"), body,
				nil); err != nil {
				return nil, &plugin.Problem{Summary: "error writing to Vault: " + err.Error()}
			}
			return p.readMount(ctx, c.Planned)
		},
		Read: p.readMount,
		Update: func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
			if c.Prior.String("path") != c.Planned.String("path") {
				return nil, errMoved
			}
			body := map[string]any{"options": c.Planned.Map("options")}
			for name, x := range leases(c.Planned) {
				body[name] = x
			}
			if err := p.client.call(ctx, http.MethodPost, "sys/mounts/"+c.Planned.String("path")+"/tune",
				body, nil); err != nil {
				return nil, &plugin.Problem{Summary: "error updating Vault: " + err.Error()}
			}
			return p.readMount(ctx, c.Planned)
		},
		Delete: func(ctx context.Context, state plugin.Values) error {
			if err := p.client.delete(ctx, "sys/mounts/"+state.String("path")); err != nil {
				return &plugin.Problem{Summary: "error deleting from Vault: " + err.Error()}
			}
			return nil
		},
	}
}

func leases(v plugin.Values) map[string]any {
	return map[string]any{
		"default_lease_ttl": fmt.Sprintf("%ds", v.Int("default_lease_ttl_seconds")),
		"max_lease_ttl":     fmt.Sprintf("%ds", v.Int("max_lease_ttl_seconds")),
	}
}

func (p *provider) readMount(ctx context.Context, state plugin.Values) (plugin.Values, error) {
	m, err := p.client.mountAt(ctx, "sys/mounts", state.String("path"))
	if m == nil || err != nil {
		return nil, err
	}
	v := plugin.Values{
		"id": state["path"], "type": cty.StringVal(m.Type), "accessor": cty.StringVal(m.Accessor),
		"default_lease_ttl_seconds": cty.NumberIntVal(m.Config.DefaultLeaseTTL),
		"max_lease_ttl_seconds":     cty.NumberIntVal(m.Config.MaxLeaseTTL),
	}
	// Vault knows no kv-v2: it is another word for the second version of kv.
	if state.String("type") == "kv-v2" && m.Type == "kv" && m.Options["version"] == "2" {
		v["type"] = cty.StringVal("kv-v2")
		if state.Map("options")["version"] == "" {
			delete(m.Options, "version")
		}
	}
	if len(m.Options) > 0 || state.Known("options") {
		v["options"] = plugin.StringMap(maps.Clone(m.Options))
	}
	return v, nil
}

package vault

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// secretPath is a secret's path in an engine of version 2; kind is data or metadata.
func secretPath(v plugin.Values, kind string) string {
	return v.String("mount") + "/" + kind + "/" + v.String("name")
}

func (p *provider) secret() plugin.Resource {
	flag := plugin.Attribute{Type: cty.Bool, Optional: true, Default: cty.False}
	return plugin.Resource{
		Legacy: true,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"mount":                {Type: cty.String, Required: true, Replace: true},
			"name":                 {Type: cty.String, Required: true, Replace: true},
			"data_json":            {Type: cty.String, Optional: true, Sensitive: true},
			"data_json_wo":         {Type: cty.String, Optional: true, WriteOnly: true},
			"data_json_wo_version": {Type: cty.Number, Optional: true},
			"cas":                  {Type: cty.Number, Optional: true},
			"disable_read":         flag,
			"delete_all_versions":  flag,
			"path":                 {Type: cty.String, Computed: true, Keep: true},
			"metadata":             {Type: cty.Map(cty.String), Computed: true},
			"id":                   {Type: cty.String, Optional: true, Computed: true, Keep: true},
		}},
		Create: p.writeSecret, Update: p.writeSecret,
		// Since it has write-only data, the real provider reads no data back: a refresh does not
		// detect drift.
		Read: func(ctx context.Context, state plugin.Values) (plugin.Values, error) {
			if state.Bool("disable_read") {
				return plugin.Values{}, nil
			}
			data, err := p.client.read(ctx, secretPath(state, "data"))
			if missing(err) {
				return nil, nil
			}
			if err != nil {
				return nil, &plugin.Problem{Summary: "error reading from Vault: " + err.Error()}
			}
			metadata, err := metadataOf(data)
			return plugin.Values{"metadata": metadata}, err
		},
		Delete: func(ctx context.Context, state plugin.Values) error {
			kind := "data"
			if state.Bool("delete_all_versions") {
				kind = "metadata"
			}
			if err := p.client.delete(ctx, secretPath(state, kind)); err != nil {
				return &plugin.Problem{
					Summary: fmt.Sprintf("error deleting %q from Vault: %q", secretPath(state, kind), err),
				}
			}
			return nil
		},
	}
}

func (p *provider) writeSecret(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	content := c.Planned.String("data_json")
	if content == "" {
		content = c.Config.String("data_json_wo")
	}
	var data map[string]any
	if json.Unmarshal([]byte(content), &data) != nil {
		return nil, &plugin.Problem{Summary: "data_json syntax error"}
	}
	body := map[string]any{"data": data}
	if c.Planned.Known("cas") {
		body["options"] = map[string]any{"cas": c.Planned.Int("cas")}
	}
	path := secretPath(c.Planned, "data")
	if err := p.client.write(ctx, path, body); err != nil {
		return nil, &plugin.Problem{Summary: err.Error()}
	}
	v := plugin.Values{"id": cty.StringVal(path), "path": cty.StringVal(path),
		"metadata": plugin.StringMap(map[string]string{})}
	if c.Planned.Bool("disable_read") {
		return v, nil
	}
	found, err := p.client.read(ctx, path)
	if err == nil {
		v["metadata"], err = metadataOf(found)
	}
	return v, err
}

func metadataOf(data map[string]json.RawMessage) (cty.Value, error) {
	var all map[string]any
	if err := json.Unmarshal(data["metadata"], &all); err != nil {
		return cty.NilVal, err
	}
	return plugin.StringMap(texts(all)), nil
}

// texts makes strings of all values: those that are none stay JSON.
func texts(all map[string]any) map[string]string {
	texts := map[string]string{}
	for name, x := range all {
		if s, ok := x.(string); ok {
			texts[name] = s
			continue
		}
		b, err := json.Marshal(x)
		if err == nil {
			texts[name] = string(b)
		}
	}
	return texts
}

func (p *provider) secretData() plugin.DataSource {
	computed := plugin.Attribute{Type: cty.String, Computed: true}
	return plugin.DataSource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"mount":           {Type: cty.String, Required: true},
			"name":            {Type: cty.String, Required: true},
			"version":         {Type: cty.Number, Optional: true},
			"path":            computed,
			"data_json":       {Type: cty.String, Computed: true, Sensitive: true},
			"data":            {Type: cty.Map(cty.String), Computed: true, Sensitive: true},
			"created_time":    computed,
			"deletion_time":   computed,
			"destroyed":       {Type: cty.Bool, Computed: true},
			"custom_metadata": {Type: cty.Map(cty.String), Computed: true},
			"id":              {Type: cty.String, Optional: true, Computed: true},
		}},
		Read: p.readSecret,
	}
}

func (p *provider) readSecret(ctx context.Context, config plugin.Values) (plugin.Values, error) {
	path := secretPath(config, "data")
	query := ""
	if config.Known("version") {
		query = fmt.Sprintf("?version=%d", config.Int("version"))
	}
	read, err := p.client.read(ctx, path+query)
	if missing(err) {
		return nil, &plugin.Problem{Summary: fmt.Sprintf("no secret found at %q", path)}
	}
	if err != nil {
		return nil, &plugin.Problem{Summary: fmt.Sprintf("error reading secret %q from Vault: %s", path, err)}
	}
	var metadata struct {
		CreatedTime    string         `json:"created_time"`
		DeletionTime   string         `json:"deletion_time"`
		Destroyed      bool           `json:"destroyed"`
		Version        int64          `json:"version"`
		CustomMetadata map[string]any `json:"custom_metadata"`
	}
	var data map[string]any
	// An engine of version 1 has neither at this path.
	if len(read["metadata"]) > 0 {
		if err := json.Unmarshal(read["metadata"], &metadata); err != nil {
			return nil, err
		}
	}
	content := read["data"]
	if len(content) == 0 {
		content = json.RawMessage("null")
	}
	if err := json.Unmarshal(content, &data); err != nil {
		return nil, err
	}
	return plugin.Values{
		"id": cty.StringVal(path), "path": cty.StringVal(path), "data_json": cty.StringVal(string(content)),
		"data":            plugin.StringMap(texts(data)),
		"created_time":    cty.StringVal(metadata.CreatedTime),
		"deletion_time":   cty.StringVal(metadata.DeletionTime),
		"destroyed":       cty.BoolVal(metadata.Destroyed),
		"custom_metadata": plugin.StringMap(texts(metadata.CustomMetadata)),
	}, nil
}

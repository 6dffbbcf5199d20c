package vault

import (
	"context"
	"encoding/json"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// object is a type of which each instance lies at one path of Vault's, where it
// is written, read and deleted. Most fields have the same name on both sides.
type object struct {
	attributes map[string]plugin.Attribute
	path       func(plugin.Values) string
	fields     []string // those that go over as they are, both ways
	// write and read convert fields whose form differs, in the request and in the response.
	// Optional.
	write func(c plugin.Change, body map[string]any)
	read  func(data map[string]json.RawMessage, state, found plugin.Values) error
}

// resource makes the plugin's type of it. All of the real ones are built on the
// old SDK.
func (p *provider) resource(o object) plugin.Resource {
	o.attributes["id"] = plugin.Attribute{Type: cty.String, Optional: true, Computed: true, Keep: true}
	write := func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
		body := map[string]any{}
		if err := o.send(c, body); err != nil {
			return nil, err
		}
		if err := p.client.write(ctx, o.path(c.Planned), body); err != nil {
			return nil, &plugin.Problem{Summary: "error writing to Vault: " + err.Error()}
		}
		made := plugin.Values{}
		for name, x := range c.Planned {
			made[name] = x
		}
		found, err := p.readObject(ctx, o, c.Planned)
		for name, x := range found {
			made[name] = x
		}
		made["id"] = cty.StringVal(o.path(c.Planned))
		return made, err
	}
	return plugin.Resource{
		Legacy: true, Schema: plugin.Block{Attributes: o.attributes},
		Create: write, Update: write,
		Read: func(ctx context.Context, state plugin.Values) (plugin.Values, error) {
			return p.readObject(ctx, o, state)
		},
		Delete: func(ctx context.Context, state plugin.Values) error {
			if err := p.client.delete(ctx, o.path(state)); err != nil {
				return &plugin.Problem{Summary: "error deleting from Vault: " + err.Error()}
			}
			return nil
		},
	}
}

// send collects the fields that are set, and those that no longer are.
func (o object) send(c plugin.Change, body map[string]any) error {
	for _, name := range o.fields {
		t := o.attributes[name].Type
		switch x := c.Planned[name]; {
		case c.Planned.Known(name):
			encoded, err := ctyjson.Marshal(x, t)
			if err != nil {
				return err
			}
			body[name] = json.RawMessage(encoded)
		case c.Prior.Known(name):
			body[name] = json.RawMessage(zero(t))
		}
	}
	if o.write != nil {
		o.write(c, body)
	}
	return nil
}

func zero(t cty.Type) string {
	switch {
	case t == cty.String:
		return `""`
	case t == cty.Number:
		return "0"
	case t == cty.Bool:
		return "false"
	case t.IsMapType():
		return "{}"
	default:
		return "[]"
	}
}

// readObject returns nil for a deleted object.
func (p *provider) readObject(ctx context.Context, o object, state plugin.Values) (plugin.Values, error) {
	data, err := p.client.read(ctx, o.path(state))
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, &plugin.Problem{Summary: "error reading from Vault: " + err.Error()}
	}
	found := plugin.Values{}
	for _, name := range o.fields {
		if err := take(data, name, o.attributes[name].Type, state, found); err != nil {
			return nil, err
		}
	}
	if o.read != nil {
		err = o.read(data, state, found)
	}
	return found, err
}

// take reads one field. A field that is empty in Vault and absent here stays absent: the old SDK
// does not distinguish the two.
func take(data map[string]json.RawMessage, name string, t cty.Type, state, found plugin.Values) error {
	raw, ok := data[name]
	if !ok {
		return nil
	}
	if string(raw) == "null" {
		raw = json.RawMessage(zero(t))
	}
	if string(raw) == zero(t) && !state.Known(name) && !state.Unknown(name) {
		return nil
	}
	x, err := ctyjson.Unmarshal(raw, t)
	found[name] = x
	return err
}

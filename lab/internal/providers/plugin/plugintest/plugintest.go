// Package plugintest drives a resource type of a stand-in provider as Terraform
// does, without Terraform: it proposes a state from a configuration, plans,
// applies and reads, and holds the answers to what Terraform would insist on.
package plugintest

import (
	"context"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// Resource is one resource instance and its state.
type Resource struct {
	t      *testing.T
	name   string
	schema plugin.Block
	server tfprotov6.ProviderServer
	State  cty.Value // null while there is no object
}

// Plan is a provider's plan.
type Plan struct {
	Prior, Planned cty.Value
	Replaces       []string // the paths that need a new object
	config         cty.Value
}

// Changes reports whether Terraform would have anything to do.
func (p Plan) Changes() bool { return !p.Planned.RawEquals(p.Prior) }

// New returns an instance that does not exist yet.
func New(t *testing.T, p plugin.Provider, name string) *Resource {
	t.Helper()
	schema := p.Resources[name].Schema
	return &Resource{t: t, name: name, schema: schema, server: plugin.NewServer(p),
		State: cty.NullVal(schema.Type())}
}

func (r *Resource) encode(v cty.Value) *tfprotov6.DynamicValue {
	r.t.Helper()
	b, err := msgpack.Marshal(v, r.schema.Type())
	if err != nil {
		r.t.Fatal(err)
	}
	return &tfprotov6.DynamicValue{MsgPack: b}
}

func (r *Resource) decode(v *tfprotov6.DynamicValue) cty.Value {
	r.t.Helper()
	x, err := msgpack.Unmarshal(v.MsgPack, r.schema.Type())
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

// Plan plans config, whose absent attributes are null and absent blocks empty.
func (r *Resource) Plan(config plugin.Values) (Plan, []*tfprotov6.Diagnostic) {
	r.t.Helper()
	p := Plan{Prior: r.State, config: complete(r.t, r.schema, config)}
	response, err := r.server.PlanResourceChange(r.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: r.name, PriorState: r.encode(r.State), Config: r.encode(p.config),
		ProposedNewState: r.encode(propose(r.schema, r.State, p.config)),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(response.Diagnostics) > 0 {
		return p, response.Diagnostics
	}
	p.Planned = r.decode(response.PlannedState)
	for _, path := range response.RequiresReplace {
		p.Replaces = append(p.Replaces, path.String())
	}
	return p, nil
}

// Apply plans and applies config, which must not replace the object. It keeps the returned state,
// even with diagnostics.
func (r *Resource) Apply(config plugin.Values) []*tfprotov6.Diagnostic {
	r.t.Helper()
	p, diagnostics := r.Plan(config)
	if len(diagnostics) > 0 {
		return diagnostics
	}
	if len(p.Replaces) > 0 {
		r.t.Fatalf("%s needs a new object because of %v", r.name, p.Replaces)
	}
	return r.apply(r.t.Context(), p.Planned, p.config)
}

// ApplyContext is Apply for a plan that has been made, under a context of its own.
func (r *Resource) ApplyContext(ctx context.Context, p Plan) []*tfprotov6.Diagnostic {
	r.t.Helper()
	return r.apply(ctx, p.Planned, p.config)
}

func (r *Resource) apply(ctx context.Context, planned, config cty.Value) []*tfprotov6.Diagnostic {
	r.t.Helper()
	response, err := r.server.ApplyResourceChange(ctx, &tfprotov6.ApplyResourceChangeRequest{
		TypeName: r.name, PriorState: r.encode(r.State), PlannedState: r.encode(planned),
		Config: r.encode(config),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.State = r.decode(response.NewState)
	if !r.State.IsWhollyKnown() {
		r.t.Errorf("%s has unknown values after apply: %#v", r.name, r.State)
	}
	//lint:ignore SA1019 as Terraform does: an old SDK may do otherwise than it planned
	legacy := response.UnsafeToUseLegacyTypeSystem
	for path, planned := range leaves(planned) {
		if now, ok := leaves(r.State)[path]; !legacy && len(response.Diagnostics) == 0 && planned.IsKnown() &&
			(!ok || !now.RawEquals(planned)) {
			r.t.Errorf("%s%s was planned otherwise than it came out", r.name, path)
		}
	}
	return response.Diagnostics
}

// Read refreshes the state.
func (r *Resource) Read() []*tfprotov6.Diagnostic {
	r.t.Helper()
	response, err := r.server.ReadResource(r.t.Context(), &tfprotov6.ReadResourceRequest{TypeName: r.name,
		CurrentState: r.encode(r.State)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.State = r.decode(response.NewState)
	return response.Diagnostics
}

// Import takes over an existing object, with the read that follows.
func (r *Resource) Import(id string) []*tfprotov6.Diagnostic {
	r.t.Helper()
	response, err := r.server.ImportResourceState(r.t.Context(),
		&tfprotov6.ImportResourceStateRequest{TypeName: r.name, ID: id})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(response.Diagnostics) > 0 {
		return response.Diagnostics
	}
	r.State = r.decode(response.ImportedResources[0].State)
	return r.Read()
}

// Destroy deletes the object.
func (r *Resource) Destroy() []*tfprotov6.Diagnostic {
	r.t.Helper()
	null := cty.NullVal(r.schema.Type())
	return r.apply(r.t.Context(), null, null)
}

// Settled reads and fails the test unless config then plans no change.
func (r *Resource) Settled(config plugin.Values) {
	r.t.Helper()
	if diagnostics := r.Read(); len(diagnostics) > 0 {
		r.t.Fatalf("%s: read: %s", r.name, diagnostics[0].Summary)
	}
	p, diagnostics := r.Plan(config)
	if len(diagnostics) > 0 {
		r.t.Fatalf("%s: plan: %s", r.name, diagnostics[0].Summary)
	}
	if p.Changes() {
		r.t.Errorf("%s: a second plan has changes:\n%#v\n%#v", r.name, p.Prior, p.Planned)
	}
}

func leaves(v cty.Value) map[string]cty.Value {
	all := map[string]cty.Value{}
	if v.IsNull() {
		return all
	}
	for name, x := range v.AsValueMap() {
		all["."+name] = x
	}
	return all
}

func complete(t *testing.T, b plugin.Block, v plugin.Values) cty.Value {
	t.Helper()
	for name := range v {
		if !b.Type().HasAttribute(name) {
			t.Fatalf("the schema has no %s", name)
		}
	}
	all := map[string]cty.Value{}
	for name, want := range b.Type().AttributeTypes() {
		x, given := v[name]
		if n, isBlock := b.Blocks[name]; isBlock && n.Mode == plugin.List {
			all[name] = cty.ListValEmpty(want.ElementType())
			if given {
				all[name] = cty.ListVal([]cty.Value{complete(t, n.Block, x.AsValueMap())})
			}
			continue
		}
		all[name] = cty.NullVal(want)
		if given {
			converted, err := convert.Convert(x, want)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all[name] = converted
		}
	}
	return cty.ObjectVal(all)
}

// propose returns the configuration, with the computed values from the state.
func propose(b plugin.Block, prior, config cty.Value) cty.Value {
	if prior.IsNull() {
		return config
	}
	all := config.AsValueMap()
	for name, a := range b.Attributes {
		if a.Computed && all[name].IsNull() {
			all[name] = prior.GetAttr(name)
		}
	}
	for name, n := range b.Blocks {
		if n.Mode == plugin.List && all[name].LengthInt() == 1 && prior.GetAttr(name).LengthInt() == 1 {
			first := cty.Zero
			all[name] = cty.ListVal([]cty.Value{
				propose(n.Block, prior.GetAttr(name).Index(first), all[name].Index(first)),
			})
		}
	}
	return cty.ObjectVal(all)
}

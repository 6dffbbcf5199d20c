package plugin_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
)

// toy is a type with one attribute of each kind.
func toy(change func(*plugin.Resource)) plugin.Provider {
	r := plugin.Resource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"name":    {Type: cty.String, Required: true, Replace: true},
			"size":    {Type: cty.Number, Optional: true, Computed: true, Default: cty.NumberIntVal(3)},
			"hush":    {Type: cty.String, Optional: true, WriteOnly: true},
			"id":      {Type: cty.String, Computed: true, Keep: true},
			"touched": {Type: cty.String, Computed: true},
			"either":  {Type: cty.String, Optional: true, Computed: true},
			"parts": {Optional: true,
				Nested: &plugin.Nested{Mode: plugin.List, Attributes: map[string]plugin.Attribute{
					"label": {Type: cty.String, Required: true},
					"kind": {Type: cty.String, Optional: true, Computed: true,
						Default: cty.StringVal("plain")},
					"made": {Type: cty.String, Computed: true, Keep: true},
				}}},
		}},
		Create: func(_ context.Context, c plugin.Change) (plugin.Values, error) {
			return plugin.Values{"id": cty.StringVal("1"), "touched": cty.StringVal("at first"),
				"either": cty.StringVal("chosen")}, nil
		},
		Update: func(context.Context, plugin.Change) (plugin.Values, error) {
			return plugin.Values{"touched": cty.StringVal("again"), "either": cty.StringVal("chosen")}, nil
		},
	}
	if change != nil {
		change(&r)
	}
	return plugin.Provider{Resources: map[string]plugin.Resource{"toy": r}}
}

func named(name string) plugin.Values { return plugin.Values{"name": cty.StringVal(name)} }

func planned(t *testing.T, r *plugintest.Resource,
	config plugin.Values) (map[string]cty.Value, plugintest.Plan) {
	t.Helper()
	p, diagnostics := r.Plan(config)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Summary)
	}
	return p.Planned.AsValueMap(), p
}

func TestANewObjectHasDefaultsAndUnknowns(t *testing.T) {
	r := plugintest.New(t, toy(nil), "toy")
	v, _ := planned(t, r, plugin.Values{"name": cty.StringVal("a"), "hush": cty.StringVal("secret"),
		"parts": cty.ListVal([]cty.Value{
			cty.ObjectVal(map[string]cty.Value{"label": cty.StringVal("x"), "kind": cty.NullVal(cty.String),
				"made": cty.NullVal(cty.String)}),
		})})
	for _, name := range []string{"id", "touched", "either"} {
		if v[name].IsKnown() {
			t.Errorf("%s is known before the object exists", name)
		}
	}
	part := v["parts"].Index(cty.Zero)
	if !v["size"].RawEquals(cty.NumberIntVal(3)) || !part.GetAttr("kind").RawEquals(cty.StringVal("plain")) {
		t.Errorf("defaults: size %#v, part %#v", v["size"], part)
	}
	if part.GetAttr("made").IsKnown() {
		t.Error("what is computed inside a list is known before the object exists")
	}
	if !v["hush"].IsNull() {
		t.Error("a write-only value is planned")
	}
}

func TestAnAppliedConfigurationIsSettled(t *testing.T) {
	r := plugintest.New(t, toy(nil), "toy")
	if diagnostics := r.Apply(named("a")); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Summary)
	}
	r.Settled(named("a"))
}

func TestAnUpdateForgetsWhatItMayChange(t *testing.T) {
	r := plugintest.New(t, toy(nil), "toy")
	r.Apply(named("a"))
	config := named("a")
	config["size"] = cty.NumberIntVal(5)
	v, p := planned(t, r, config)
	if !v["id"].RawEquals(cty.StringVal("1")) {
		t.Errorf("id: %#v", v["id"])
	}
	if v["touched"].IsKnown() || v["either"].IsKnown() {
		t.Error("an update may change touched and either")
	}
	if len(p.Replaces) != 0 {
		t.Errorf("replaces: %v", p.Replaces)
	}
	if _, p = planned(t, r, named("b")); !slices.Equal(p.Replaces, []string{`AttributeName("name")`}) {
		t.Errorf("replaces: %v", p.Replaces)
	}
}

func TestAFailedCreateKeepsWhatExists(t *testing.T) {
	half := func(r *plugin.Resource) {
		r.Create = func(context.Context, plugin.Change) (plugin.Values, error) {
			return plugin.Values{"id": cty.StringVal("half")}, errors.New("the second half failed")
		}
	}
	r := plugintest.New(t, toy(half), "toy")
	diagnostics := r.Apply(named("a"))
	if len(diagnostics) != 1 || diagnostics[0].Summary != "the second half failed" {
		t.Fatalf("diagnostics: %v", diagnostics)
	}
	if r.State.IsNull() || !r.State.GetAttr("id").RawEquals(cty.StringVal("half")) {
		t.Errorf("state: %#v", r.State)
	}
}

func TestAFailedUpdateOrDeleteKeepsTheState(t *testing.T) {
	refuse := func(r *plugin.Resource) {
		r.Update = func(context.Context, plugin.Change) (plugin.Values, error) {
			return nil, errors.New("no")
		}
		r.Delete = func(context.Context, plugin.Values) error {
			return &plugin.Problem{Summary: "Not now", Detail: "ask later"}
		}
	}
	r := plugintest.New(t, toy(refuse), "toy")
	r.Apply(named("a"))
	before := r.State
	config := named("a")
	config["size"] = cty.NumberIntVal(5)
	if diagnostics := r.Apply(config); len(diagnostics) != 1 || !r.State.RawEquals(before) {
		t.Errorf("after a failed update: %v, %#v", diagnostics, r.State)
	}
	if diagnostics := r.Destroy(); len(diagnostics) != 1 || diagnostics[0].Detail != "ask later" ||
		!r.State.RawEquals(before) {
		t.Errorf("after a failed delete: %v, %#v", diagnostics, r.State)
	}
}

func TestWhatIsGoneLeavesTheState(t *testing.T) {
	gone := func(r *plugin.Resource) {
		r.Read = func(context.Context, plugin.Values) (plugin.Values, error) { return nil, nil }
	}
	r := plugintest.New(t, toy(gone), "toy")
	r.Apply(named("a"))
	if diagnostics := r.Read(); len(diagnostics) > 0 || !r.State.IsNull() {
		t.Errorf("%v, %#v", diagnostics, r.State)
	}
}

func TestAPlanFunctionMayForceANewObject(t *testing.T) {
	force := func(r *plugin.Resource) {
		r.Plan = func(_ context.Context, p *plugin.Plan) error {
			if p.Change.Prior != nil && p.Differs("size") {
				p.Forced = append(p.Forced, "size")
			}
			return nil
		}
	}
	r := plugintest.New(t, toy(force), "toy")
	r.Apply(named("a"))
	config := named("a")
	config["size"] = cty.NumberIntVal(5)
	if _, p := planned(t, r, config); !slices.Equal(p.Replaces, []string{`AttributeName("size")`}) {
		t.Errorf("replaces: %v", p.Replaces)
	}
}

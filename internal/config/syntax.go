package config

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// stageBlock is a stage block, in stage.hcl or in cluster.hcl.
type stageBlock struct {
	summary                           string
	endsCluster, persistent, volatile bool
	timeout                           hcl.Expression // nil where the block does not say
	inputs                            map[string]input
	needs                             []layerName // nil where the block does not say
}

// input is one key of inputs = { … }.
type input struct {
	expr hcl.Expression
	at   hcl.Range
}

// layerName is one element of needs = [ … ].
type layerName struct {
	name string
	at   hcl.Range
}

// block is a gate, preflight or adopt block, or the exists block in the latter.
type block struct {
	kind   string // "gate"
	labels []string
	at     hcl.Range
	args   map[string]hcl.Expression
	places map[string]hcl.Range // where an argument's name stands
	needs  []layerName          // nil where the block does not say
	exists *block               // of an adopt block, if it has one

	// What the block's type takes, once the type is known.
	takes map[string]gate.Attribute
	check func(gate.Values) error
}

// key is what tells blocks of one kind apart: "endpoint_slice.webhook".
func (b *block) key() string { return strings.Join(b.labels, ".") }

// name is how messages call the block: "gate endpoint_slice.webhook".
func (b *block) name() string { return b.kind + " " + b.key() }

// readCommon reads what a stage block in stage.hcl and one in cluster.hcl may both say.
func (s *stageBlock) readCommon(content *hcl.BodyContent) hcl.Diagnostics {
	var diags hcl.Diagnostics
	if attr, ok := content.Attributes["timeout"]; ok {
		s.timeout = attr.Expr
	}
	if attr, ok := content.Attributes["inputs"]; ok {
		inputs, more := readInputs(attr.Expr)
		s.inputs, diags = inputs, append(diags, more...)
	}
	if attr, ok := content.Attributes["needs"]; ok {
		needs, more := readNeeds(attr.Expr)
		s.needs, diags = needs, append(diags, more...)
	}
	return diags
}

func readInputs(expr hcl.Expression) (map[string]input, hcl.Diagnostics) {
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		return nil, hcl.Diagnostics{problem(expr.Range(), "inputs: not a list of names and values", "Write inputs = { name = value }.")}
	}
	inputs := make(map[string]input)
	for _, kv := range pairs {
		key, more := constant(&hcl.Attribute{Expr: kv.Key}, cty.String, nil)
		diags = append(diags, more...)
		if !key.IsKnown() {
			continue
		}
		name := key.AsString()
		if first, twice := inputs[name]; twice {
			diags = append(diags, problem(kv.Key.Range(), "input "+name+": set twice", "The first one is at %s.", place(first.at)))
			continue
		}
		inputs[name] = input{expr: kv.Value, at: kv.Key.Range()}
	}
	return inputs, diags
}

func readNeeds(expr hcl.Expression) ([]layerName, hcl.Diagnostics) {
	exprs, diags := hcl.ExprList(expr)
	if diags.HasErrors() {
		return nil, hcl.Diagnostics{problem(expr.Range(), "needs: not a list of layers", "Write needs = [engine, storage].")}
	}
	needs := make([]layerName, 0, len(exprs))
	for _, e := range exprs {
		name := hcl.ExprAsKeyword(e)
		if name == "" {
			diags = append(diags, problem(e.Range(), "needs: not a layer's name", "Layers are named without quotes: needs = [engine, storage]."))
			continue
		}
		needs = append(needs, layerName{name: name, at: e.Range()})
	}
	return needs, diags
}

func readBlock(b *hcl.Block) (*block, hcl.Diagnostics) {
	x := &block{kind: b.Type, labels: b.Labels, at: b.DefRange, args: map[string]hcl.Expression{}, places: map[string]hcl.Range{}}
	read := b.Body.JustAttributes
	if b.Type == "adopt" {
		read = func() (hcl.Attributes, hcl.Diagnostics) { return x.readAdopt(b.Body) }
	}
	attrs, diags := read()
	for name, attr := range attrs {
		if name == "needs" && b.Type == "gate" {
			needs, more := readNeeds(attr.Expr)
			x.needs, diags = needs, append(diags, more...)
			continue
		}
		x.args[name], x.places[name] = attr.Expr, attr.NameRange
	}
	return x, diags
}

// readAdopt reads the body of an adopt block, the one kind with a block inside.
func (b *block) readAdopt(body hcl.Body) (hcl.Attributes, hcl.Diagnostics) {
	content, diags := body.Content(&hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{{Name: "id"}},
		Blocks:     []hcl.BlockHeaderSchema{{Type: "exists", LabelNames: []string{"type"}}},
	})
	for _, inner := range content.Blocks {
		if b.exists != nil {
			diags = append(diags, problem(inner.DefRange, b.name()+": second block exists", "The first one is at %s.", place(b.exists.at)))
			continue
		}
		exists, more := readBlock(inner)
		b.exists, diags = exists, append(diags, more...)
	}
	return content.Attributes, diags
}

// constant evaluates an attribute that must be known before a run and must not
// be null. An absent or unsuitable one is unknown.
func constant(attr *hcl.Attribute, want cty.Type, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if attr == nil {
		return cty.UnknownVal(want), nil
	}
	v, diags := attr.Expr.Value(ctx)
	if diags.HasErrors() {
		return cty.UnknownVal(want), plain(diags)
	}
	converted, err := convertTo(v, want)
	switch {
	case err != nil:
		return cty.UnknownVal(want), hcl.Diagnostics{problem(attr.Expr.Range(), "unsuitable value", "%s.", err)}
	case converted.IsNull():
		return cty.UnknownVal(want), hcl.Diagnostics{problem(attr.Expr.Range(), "unsuitable value", "A %s is needed, not null.", want.FriendlyName())}
	}
	return converted, nil
}

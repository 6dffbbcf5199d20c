package config

import (
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// stageSyntax is stage.hcl.
type stageSyntax struct {
	Stage      *stageBlock   `hcl:"stage,block"`
	Gates      []blockSyntax `hcl:"gate,block"`
	Preflights []blockSyntax `hcl:"preflight,block"`
	Adopts     []adoptSyntax `hcl:"adopt,block"`
}

// stageBlock is the stage block of stage.hcl.
type stageBlock struct {
	Summary       string         `hcl:"summary,optional"`
	EndsCluster   bool           `hcl:"ends_cluster,optional"`
	EndsClusterAt hcl.Range      `hcl:"ends_cluster,attr_range"`
	Persistent    bool           `hcl:"persistent,optional"`
	Volatile      bool           `hcl:"volatile,optional"`
	Timeout       *hcl.Attribute `hcl:"timeout,optional"`
	Inputs        *hcl.Attribute `hcl:"inputs,optional"`
	Needs         *hcl.Attribute `hcl:"needs,optional"`
}

// blockSyntax is a gate or preflight block.
type blockSyntax struct {
	Type       string         `hcl:"type,label"`
	Label      string         `hcl:"label,label"`
	At         hcl.Range      `hcl:",def_range"`
	Attributes hcl.Attributes `hcl:",remain"`
}

// adoptSyntax is an adopt block, with its exists block.
type adoptSyntax struct {
	Address string         `hcl:"address,label"`
	At      hcl.Range      `hcl:",def_range"`
	ID      *hcl.Attribute `hcl:"id,optional"`
	Exists  []struct {
		Type       string         `hcl:"type,label"`
		At         hcl.Range      `hcl:",def_range"`
		Attributes hcl.Attributes `hcl:",remain"`
	} `hcl:"exists,block"`
}

// settings are the arguments of a stage block that stage.hcl and cluster.hcl share.
type settings struct {
	timeout *hcl.Attribute // nil where the block has none
	inputs  map[string]input
	needs   []layerName // nil where the block has none
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
	places map[string]hcl.Range // of the arguments' names
	needs  []layerName          // nil where the block has none
	exists *block               // of an adopt block, if it has one

	// The arguments of the block's type, once the type is known.
	takes map[string]gate.Attribute
	check func(gate.Values) error
}

// key tells blocks of one kind apart: "endpoint_slice.webhook".
func (b *block) key() string { return strings.Join(b.labels, ".") }

// name is the block's name in messages: "gate endpoint_slice.webhook".
func (b *block) name() string { return b.kind + " " + b.key() }

// readStageFile reads a stage's stage.hcl.
func (d *definition) readStageFile(l *library, folder string) {
	d.file = path.Join(folder, "stage.hcl")
	f, diags := l.read(d.module, "stage.hcl", d.file, true)
	if f == nil && !diags.HasErrors() {
		d.report(problem(wholeFile(d.file), "stage "+d.source+": no stage.hcl",
			"A stage's folder holds Terraform files and one stage.hcl with a stage block."))
	}
	file := stageSyntax{Stage: &stageBlock{}}
	d.report(decode(f, diags, nil, &file)...)
	d.stage = *file.Stage
	if d.stage.EndsCluster && d.layer != "platform" {
		d.report(problem(d.stage.EndsClusterAt, "stage "+d.source+": ends_cluster outside the platform",
			"Only a stage of the layer platform can end the cluster; this one belongs to %s.", d.layer))
	}
	d.settings, diags = readSettings(d.stage.Timeout, d.stage.Inputs, d.stage.Needs)
	d.report(diags...)
	d.gates, diags = readBlocks("gate", "stage "+d.source+": ", file.Gates)
	d.report(diags...)
	d.preflights, diags = readBlocks("preflight", "stage "+d.source+": ", file.Preflights)
	d.report(diags...)
	seen := make(blockNames)
	for _, a := range file.Adopts {
		if diags := seen.add("adopt "+a.Address, "stage "+d.source+": ", a.At); diags != nil {
			d.report(diags...)
			continue
		}
		adopt, diags := readAdopt(a)
		d.adopts = append(d.adopts, adopt)
		d.report(diags...)
	}
}

// decode decodes a parsed file, which may be nil. An error in a line that has a syntax
// error follows from that, and is not reported.
func decode(f *hcl.File, syntax hcl.Diagnostics, ctx *hcl.EvalContext, into any) hcl.Diagnostics {
	if f == nil {
		return syntax
	}
	line := func(d *hcl.Diagnostic) int { return d.Subject.Start.Line }
	diags := slices.DeleteFunc(plain(gohcl.DecodeBody(f.Body, ctx, into)), func(d *hcl.Diagnostic) bool {
		return slices.ContainsFunc(syntax, func(s *hcl.Diagnostic) bool { return line(s) == line(d) })
	})
	return append(syntax, diags...)
}

// readSettings reads the settings of a stage block; each attribute may be nil.
func readSettings(timeout, inputs, needs *hcl.Attribute) (settings, hcl.Diagnostics) {
	s := settings{timeout: timeout}
	var diags, more hcl.Diagnostics
	if inputs != nil {
		s.inputs, diags = readInputs(inputs.Expr)
	}
	if needs != nil {
		s.needs, more = readNeeds(needs.Expr)
	}
	return s, append(diags, more...)
}

func readInputs(expr hcl.Expression) (map[string]input, hcl.Diagnostics) {
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		return nil, hcl.Diagnostics{problem(expr.Range(), "inputs: not a list of names and values",
			"Write inputs = { name = value }.")}
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
			diags = append(diags, problem(kv.Key.Range(), "input "+name+": set twice",
				"The first one is at %s.", place(first.at)))
			continue
		}
		inputs[name] = input{expr: kv.Value, at: kv.Key.Range()}
	}
	return inputs, diags
}

func readNeeds(expr hcl.Expression) ([]layerName, hcl.Diagnostics) {
	exprs, diags := hcl.ExprList(expr)
	if diags.HasErrors() {
		return nil, hcl.Diagnostics{problem(expr.Range(), "needs: not a list of layers",
			"Write needs = [engine, storage].")}
	}
	needs := make([]layerName, 0, len(exprs))
	for _, e := range exprs {
		name := hcl.ExprAsKeyword(e)
		if name == "" {
			diags = append(diags, problem(e.Range(), "needs: not a layer's name",
				"Layers are named without quotes: needs = [engine, storage]."))
			continue
		}
		needs = append(needs, layerName{name: name, at: e.Range()})
	}
	return needs, diags
}

// readBlocks reads gates or preflights, each name once. of begins the messages.
func readBlocks(kind, of string, all []blockSyntax) ([]*block, hcl.Diagnostics) {
	var blocks []*block
	var diags hcl.Diagnostics
	seen := make(blockNames)
	for _, x := range all {
		b, more := newBlock(kind, x.At, x.Attributes, x.Type, x.Label)
		if second := seen.add(b.name(), of, b.at); second != nil {
			diags = append(diags, second...)
			continue
		}
		blocks, diags = append(blocks, b), append(diags, more...)
	}
	return blocks, diags
}

func newBlock(kind string, at hcl.Range, attrs hcl.Attributes, labels ...string) (*block, hcl.Diagnostics) {
	b := &block{kind: kind, labels: labels, at: at, args: map[string]hcl.Expression{},
		places: map[string]hcl.Range{}}
	var diags hcl.Diagnostics
	for name, attr := range attrs {
		if name == "needs" && kind == "gate" {
			b.needs, diags = readNeeds(attr.Expr)
			continue
		}
		b.args[name], b.places[name] = attr.Expr, attr.NameRange
	}
	return b, diags
}

func readAdopt(a adoptSyntax) (*block, hcl.Diagnostics) {
	attrs := hcl.Attributes{}
	if a.ID != nil {
		attrs["id"] = a.ID
	}
	b, diags := newBlock("adopt", a.At, attrs, a.Address)
	seen := make(blockNames)
	for _, e := range a.Exists {
		if second := seen.add("exists", b.name()+": ", e.At); second != nil {
			diags = append(diags, second...)
			continue
		}
		exists, more := newBlock("exists", e.At, e.Attributes, e.Type)
		b.exists, diags = exists, append(diags, more...)
	}
	return b, diags
}

// blockNames are the blocks of a file by name, and where each begins.
type blockNames map[string]hcl.Range

// add adds a block, or reports that it is the second of its name.
func (n blockNames) add(name, of string, at hcl.Range) hcl.Diagnostics {
	if first, twice := n[name]; twice {
		return hcl.Diagnostics{problem(at, of+"second block "+name, "The first one is at %s.", place(first))}
	}
	n[name] = at
	return nil
}

// constant evaluates an attribute that must be known before a run and must not be
// null. An absent or unsuitable one is unknown.
func constant(attr *hcl.Attribute, want cty.Type, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if attr == nil {
		return cty.UnknownVal(want), nil
	}
	v, diags := attr.Expr.Value(ctx)
	if diags.HasErrors() {
		return cty.UnknownVal(want), plain(diags)
	}
	converted, err := convertTo(v, want)
	switch at := attr.Expr.Range(); {
	case err != nil:
		return invalid(want, at, "unsuitable value", "%s.", err)
	case converted.IsNull():
		return invalid(want, at, "unsuitable value", "A %s is needed, not null.", want.FriendlyName())
	}
	return converted, nil
}

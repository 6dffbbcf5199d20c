package config

import (
	"path"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// stageSyntax is stage.hcl.
type stageSyntax struct {
	Stage      *stageBlock     `hcl:"stage,block"`
	Gates      []blockSyntax   `hcl:"gate,block"`
	Preflights []blockSyntax   `hcl:"preflight,block"`
	Adopts     []adoptSyntax   `hcl:"adopt,block"`
	Replaces   []replaceSyntax `hcl:"replace,block"`
}

// stageBlock is the stage block of stage.hcl.
type stageBlock struct {
	Summary       string         `hcl:"summary,optional"`
	EndsCluster   bool           `hcl:"ends_cluster,optional"`
	EndsClusterAt hcl.Range      `hcl:"ends_cluster,attr_range"`
	Persistent    bool           `hcl:"persistent,optional"`
	Volatile      bool           `hcl:"volatile,optional"`
	Timeout       *hcl.Attribute `hcl:"timeout,optional" type:"duration"`
	Inputs        *hcl.Attribute `hcl:"inputs,optional" type:"map of expressions"`
	Needs         *hcl.Attribute `hcl:"needs,optional" type:"list of layers"`
}

// blockSyntax is a gate or preflight block.
type blockSyntax struct {
	Type  string         `hcl:"type,label"`
	Label string         `hcl:"label,label"`
	At    hcl.Range      `hcl:",def_range"`
	Args  hcl.Attributes `hcl:",remain" type:"expressions"`
}

// adoptSyntax is an adopt block, with its exists block.
type adoptSyntax struct {
	Address string         `hcl:"address,label"`
	At      hcl.Range      `hcl:",def_range"`
	ID      *hcl.Attribute `hcl:"id,optional" type:"expression"`
	Exists  *struct {
		Type string         `hcl:"type,label"`
		At   hcl.Range      `hcl:",def_range"`
		Args hcl.Attributes `hcl:",remain" type:"expressions"`
	} `hcl:"exists,block"`
}

// replaceSyntax is a replace block.
type replaceSyntax struct {
	Address  string         `hcl:"address,label"`
	At       hcl.Range      `hcl:",def_range"`
	Instance *hcl.Attribute `hcl:"instance,optional" type:"expression"`
}

// settings are the arguments of a stage block that stage.hcl and cluster.hcl share.
type settings struct {
	timeout *hcl.Attribute // nil where the block has none
	inputs  map[string]Written
	needs   []layerName // nil where the block has none
}

// layerName is one element of needs = [ … ].
type layerName struct {
	name string
	at   hcl.Range
}

// block is a gate, preflight, adopt or replace block, or the exists block in an adopt block.
type block struct {
	kind   string // "gate"
	labels []string
	at     hcl.Range
	args   hcl.Attributes
	needs  []layerName // nil where the block has none
	exists *block      // of an adopt block, if it has one

	// The arguments of the block's type, once the type is known.
	takes map[string]gate.Attribute
	check func(gate.Values) error
}

// key tells blocks of one kind apart: "endpoint_slice.webhook".
func (b *block) key() string { return strings.Join(b.labels, ".") }

// name is the block's name in messages: "gate endpoint_slice.webhook".
func (b *block) name() string { return b.kind + " " + b.key() }

// readStageFile reads a stage's stage.hcl.
func (d *definition) readStageFile(folder string) {
	d.file = path.Join(folder, "stage.hcl")
	s := &d.stage
	of := "stage " + s.Source + ": "
	f, diags := d.read("stage.hcl", d.file)
	if f == nil && !diags.HasErrors() {
		d.diags.add(syntax.WholeFile(d.file), of+"no stage.hcl",
			"A stage's folder holds Terraform files and one stage.hcl with a stage block.")
	}
	d.incomplete = d.incomplete || f == nil || diags.HasErrors()
	file := stageSyntax{Stage: &stageBlock{}}
	d.diags.decode(f, diags, nil, &file)
	b := file.Stage
	s.Summary, s.EndsCluster, s.Persistent, s.Volatile = b.Summary, b.EndsCluster, b.Persistent, b.Volatile
	if s.EndsCluster && s.Layer != "platform" {
		d.diags.add(b.EndsClusterAt, of+"ends_cluster outside the platform",
			"Only a stage of the layer platform can end the cluster; this one belongs to %s.", s.Layer)
	}
	d.settings = d.diags.readSettings(b.Timeout, b.Inputs, b.Needs)
	d.gates = d.diags.readBlocks("gate", of, file.Gates)
	d.preflights = d.diags.readBlocks("preflight", of, file.Preflights)
	seen := make(blockNames)
	for _, a := range file.Adopts {
		adopt := &block{kind: "adopt", labels: []string{a.Address}, at: a.At,
			args: hcl.Attributes{"id": a.ID}}
		if e := a.Exists; e != nil {
			adopt.exists = &block{kind: "exists", labels: []string{e.Type}, at: e.At, args: e.Args}
		}
		if seen.isFirst(&d.diags, adopt.name(), of, a.At) {
			d.adopts = append(d.adopts, adopt)
		}
	}
	for _, x := range file.Replaces {
		replace := &block{kind: "replace", labels: []string{x.Address}, at: x.At,
			args: hcl.Attributes{"instance": x.Instance}}
		if seen.isFirst(&d.diags, replace.name(), of, x.At) {
			d.replaces = append(d.replaces, replace)
		}
	}
}

// decode decodes a parsed file, which may be nil, and reports whether it is without error.
func (p *problems) decode(f *hcl.File, parsed hcl.Diagnostics, ctx *hcl.EvalContext, into any) bool {
	p.report(parsed...)
	if f == nil {
		return !parsed.HasErrors()
	}
	diags := syntax.Reduce(f, syntax.Plain(gohcl.DecodeBody(f.Body, ctx, into)))
	p.report(diags...)
	return !parsed.HasErrors() && !diags.HasErrors()
}

// readSettings reads the settings of a stage block; each attribute may be nil.
func (p *problems) readSettings(timeout, inputs, needs *hcl.Attribute) settings {
	return settings{timeout: timeout, inputs: p.readInputs(inputs), needs: p.readNeeds(needs)}
}

func (p *problems) readInputs(attr *hcl.Attribute) map[string]Written {
	if attr == nil {
		return nil
	}
	pairs, diags := hcl.ExprMap(attr.Expr)
	if diags.HasErrors() {
		p.add(attr.Expr.Range(), "inputs: not a list of names and values", "Write inputs = { name = value }.")
	}
	inputs := make(map[string]Written)
	for _, kv := range pairs {
		key := p.constant(&hcl.Attribute{Expr: kv.Key}, cty.String, nil)
		if !key.IsKnown() {
			continue
		}
		name := key.AsString()
		if first, twice := inputs[name]; twice {
			p.add(kv.Key.Range(), "input "+name+": set twice", "The first one is at %s.",
				syntax.Place(first.at))
			continue
		}
		inputs[name] = Written{Name: name, at: kv.Key.Range(), expr: kv.Value}
	}
	return inputs
}

func (p *problems) readNeeds(attr *hcl.Attribute) []layerName {
	if attr == nil {
		return nil
	}
	exprs, diags := hcl.ExprList(attr.Expr)
	if diags.HasErrors() {
		p.add(attr.Expr.Range(), "needs: not a list of layers", "Write needs = [engine, storage].")
		return nil
	}
	needs := make([]layerName, 0, len(exprs))
	for _, e := range exprs {
		name := hcl.ExprAsKeyword(e)
		if name == "" {
			p.add(e.Range(), "needs: not a layer's name",
				"Layers are named without quotes: needs = [engine, storage].")
			continue
		}
		needs = append(needs, layerName{name: name, at: e.Range()})
	}
	return needs
}

// readBlocks reads gates or preflights, each name once. of begins the messages.
func (p *problems) readBlocks(kind, of string, all []blockSyntax) []*block {
	var blocks []*block
	seen := make(blockNames)
	for _, x := range all {
		b := &block{kind: kind, labels: []string{x.Type, x.Label}, at: x.At, args: x.Args}
		if !seen.isFirst(p, b.name(), of, b.at) {
			continue
		}
		if kind == "gate" {
			b.needs = p.readNeeds(b.args["needs"])
			delete(b.args, "needs")
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// blockNames are the blocks of a file by name, and where each begins.
type blockNames map[string]hcl.Range

// isFirst notes a block, or reports that it is the second of its name.
func (n blockNames) isFirst(p *problems, name, of string, at hcl.Range) bool {
	if first, twice := n[name]; twice {
		p.add(at, of+"second block "+name, "The first one is at %s. Rename or remove one of them.",
			syntax.Place(first))
		return false
	}
	n[name] = at
	return true
}

// constant evaluates an attribute that must be known before a run and must not be
// null. An absent or unsuitable one is unknown.
func (p *problems) constant(attr *hcl.Attribute, want cty.Type, ctx *hcl.EvalContext) cty.Value {
	if attr == nil {
		return cty.UnknownVal(want)
	}
	v, diags := attr.Expr.Value(ctx)
	of := strings.TrimPrefix(attr.Name+": unsuitable value", ": ")
	v, err := syntax.Convert(v, want)
	switch {
	case (diags.HasErrors() || err != nil) && want == cty.Bool:
		p.add(attr.Expr.Range(), of, "Write true or false.")
	case diags.HasErrors():
		p.report(syntax.Plain(diags)...)
	case err != nil:
		p.add(attr.Expr.Range(), of, "%s.", err)
	case v.IsNull():
		p.add(attr.Expr.Range(), of, "A %s is needed, not null.", want.FriendlyName())
	default:
		return v
	}
	return cty.UnknownVal(want)
}

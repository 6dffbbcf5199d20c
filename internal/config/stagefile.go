package config

import (
	"path"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// readStageFile reads a stage's stage.hcl.
func (d *definition) readStageFile(l *library, folder string) {
	d.file = path.Join(folder, "stage.hcl")
	f, diags := l.read(d.module, "stage.hcl", d.file, true)
	d.diags = append(d.diags, diags...)
	if f == nil && !diags.HasErrors() {
		at := hcl.Range{Filename: d.file, Start: hcl.InitialPos, End: hcl.InitialPos}
		d.diags = append(d.diags, problem(at, "stage "+d.source+": no stage.hcl", "A stage's folder holds Terraform files and one stage.hcl with a stage block."))
	}
	if f == nil {
		return
	}
	content, diags := f.Body.Content(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "stage"},
		{Type: "gate", LabelNames: []string{"type", "label"}},
		{Type: "preflight", LabelNames: []string{"type", "label"}},
		{Type: "adopt", LabelNames: []string{"address"}},
	}})
	d.diags = append(d.diags, diags...)
	seen := make(map[string]hcl.Range)
	for _, b := range content.Blocks {
		key := b.Type
		if b.Type == "stage" {
			d.readStageBlock(b)
		} else {
			x, diags := readBlock(b)
			d.diags = append(d.diags, diags...)
			key += " " + x.key()
			d.keep(x, seen[key].Filename == "")
		}
		if first := seen[key]; first.Filename != "" {
			d.diags = append(d.diags, problem(b.DefRange, "stage "+d.source+": second block "+key, "The first one is at %s.", place(first)))
			continue
		}
		seen[key] = b.DefRange
	}
}

func (d *definition) keep(b *block, first bool) {
	switch {
	case !first:
	case b.kind == "gate":
		d.gates = append(d.gates, b)
	case b.kind == "preflight":
		d.preflights = append(d.preflights, b)
	default:
		d.adopts = append(d.adopts, b)
	}
}

func (d *definition) readStageBlock(b *hcl.Block) {
	content, diags := b.Body.Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "summary"}, {Name: "needs"}, {Name: "inputs"}, {Name: "timeout"},
		{Name: "ends_cluster"}, {Name: "persistent"}, {Name: "volatile"},
	}})
	d.diags = append(d.diags, diags...)
	d.diags = append(d.diags, d.stage.readCommon(content)...)
	flag := func(name string) bool {
		v, diags := constant(content.Attributes[name], cty.Bool, nil)
		d.diags = append(d.diags, diags...)
		return v.IsKnown() && v.True()
	}
	d.stage.endsCluster, d.stage.persistent, d.stage.volatile = flag("ends_cluster"), flag("persistent"), flag("volatile")
	if d.stage.endsCluster && d.layer != "platform" {
		d.diags = append(d.diags, problem(content.Attributes["ends_cluster"].Range, "stage "+d.source+": ends_cluster outside the platform",
			"Only a stage of the layer platform can end the cluster; this one belongs to %s.", d.layer))
	}
	summary, diags := constant(content.Attributes["summary"], cty.String, nil)
	d.diags = append(d.diags, diags...)
	if summary.IsKnown() {
		d.stage.summary = summary.AsString()
	}
}

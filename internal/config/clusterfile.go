package config

import (
	"math"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// entry is one stage block of cluster.hcl.
type entry struct {
	name    string
	source  string
	at      hcl.Range // of the block
	from    hcl.Range // of the source
	enabled bool
	askedBy string    // the stage that asks its gates; empty: it does itself, or nobody
	askedAt hcl.Range // of askedBy
	stage   stageBlock
	gates   []*block
}

// readCastleFile reads castle.hcl, where there is one.
func (l *loader) readCastleFile() {
	f, diags := l.library.read(os.DirFS(l.Repository), "castle.hcl", "castle.hcl", true)
	l.report(diags...)
	if !diags.HasErrors() {
		l.cluster.Snapshots = defaultSnapshots
	}
	if f == nil {
		return
	}
	content, diags := f.Body.Content(&hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{{Name: "required_castle_version"}},
		Blocks:     []hcl.BlockHeaderSchema{{Type: "defaults"}, {Type: "state"}, {Type: "gitops"}},
	})
	l.report(diags...)
	l.checkVersion(content.Attributes["required_castle_version"])
	seen := make(map[string]hcl.Range)
	for _, b := range content.Blocks {
		if first := seen[b.Type]; first.Filename != "" {
			l.report(problem(b.DefRange, "castle.hcl: second block "+b.Type, "The first one is at %s.", place(first)))
			continue
		}
		seen[b.Type] = b.DefRange
		switch b.Type {
		case "state":
			l.readState(b)
			continue
		case "gitops":
			l.gitops = &clone{b, filepath.Join(l.Repository, "castle.hcl")}
			continue
		}
		inner, diags := b.Body.Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "timeout"}, {Name: "inputs"}}})
		l.report(diags...)
		l.report(l.defaults.readCommon(inner)...)
	}
}

const (
	defaultSnapshots = 20
	fewestSnapshots  = 2 // the state before the last change, and after it
)

// readState reads the block state of castle.hcl. Where it is wrong, no snapshot is dropped.
func (l *loader) readState(b *hcl.Block) {
	inner, diags := b.Body.Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "snapshots"}}})
	l.report(diags...)
	attr := inner.Attributes["snapshots"]
	if attr == nil {
		return
	}
	l.cluster.Snapshots = 0
	v, diags := constant(attr, cty.Number, nil)
	l.report(diags...)
	if !v.IsKnown() {
		return
	}
	n, accuracy := v.AsBigFloat().Int64()
	if accuracy != big.Exact || n < fewestSnapshots || n > math.MaxInt32 {
		l.report(problem(attr.Expr.Range(), "castle.hcl: unsuitable snapshots",
			"%s is no whole number of at least %d: how many snapshots are kept of each stage's state.", v.AsBigFloat().Text('g', -1), fewestSnapshots))
		return
	}
	l.cluster.Snapshots = int(n)
}

func (l *loader) checkVersion(attr *hcl.Attribute) {
	required, diags := constant(attr, cty.String, nil)
	l.report(diags...)
	if !required.IsKnown() {
		return
	}
	constraints, err := version.NewConstraint(required.AsString())
	if err != nil {
		l.report(problem(attr.Expr.Range(), "castle.hcl: unsuitable required_castle_version", `%s. Write a constraint such as ">= 1.2".`, err))
		return
	}
	own, err := version.NewVersion(l.CastleVersion)
	if err != nil {
		return // a development build has no version to compare
	}
	if !constraints.Check(own) {
		l.report(problem(attr.Expr.Range(), "castle: version "+own.String()+" does not suit this repository",
			"It requires castle %s.", required.AsString()))
	}
}

// readClusterFile reads cluster.hcl into entries. A file that cannot be read
// may protect the cluster, so it does.
func (l *loader) readClusterFile() []*entry {
	f, diags := l.library.read(os.DirFS(l.cluster.Dir), "cluster.hcl", l.file("cluster.hcl"), true)
	l.report(diags...)
	l.cluster.Protect = diags.HasErrors()
	if f == nil {
		return nil
	}
	content, diags := f.Body.Content(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "cluster"},
		{Type: "gitops"},
		{Type: "stage", LabelNames: []string{"name"}},
	}})
	l.report(diags...)
	var entries []*entry
	seen := make(map[string]hcl.Range)
	for _, b := range content.Blocks {
		key := b.Type
		if b.Type == "stage" {
			key += " " + b.Labels[0]
		}
		if first := seen[key]; first.Filename != "" {
			l.report(problem(b.DefRange, key+": second block", "The first one is at %s.", place(first)))
			continue
		}
		seen[key] = b.DefRange
		if b.Type == "stage" {
			entries = append(entries, l.readEntry(b))
			continue
		}
		if b.Type == "gitops" {
			l.gitops = &clone{b, filepath.Join(l.cluster.Dir, "cluster.hcl")}
			continue
		}
		inner, diags := b.Body.Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "protect"}}})
		l.report(diags...)
		protect, diags := constant(inner.Attributes["protect"], cty.Bool, l.cluster.context())
		l.report(diags...)
		l.cluster.Protect = protect.IsKnown() && protect.True()
	}
	return entries
}

func (l *loader) readEntry(b *hcl.Block) *entry {
	e := &entry{name: b.Labels[0], at: b.DefRange, enabled: true}
	switch {
	case layerIndex(e.name) >= 0:
		l.report(problem(b.LabelRanges[0], "stage "+e.name+": named like a layer", "A stage's name may not be a layer's name, so that --only %s can mean one thing only.", e.name))
	case !hclsyntax.ValidIdentifier(e.name):
		l.report(problem(b.LabelRanges[0], "stage "+e.name+": unsuitable name", "A name has letters, digits, - and _ and begins with a letter."))
	}
	content, diags := b.Body.Content(&hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{{Name: "source", Required: true}, {Name: "enabled"}, {Name: "asked_by"}, {Name: "timeout"}, {Name: "needs"}, {Name: "inputs"}},
		Blocks:     []hcl.BlockHeaderSchema{{Type: "gate", LabelNames: []string{"type", "label"}}},
	})
	l.report(diags...)
	l.report(e.stage.readCommon(content)...)
	source, diags := constant(content.Attributes["source"], cty.String, nil)
	l.report(diags...)
	if source.IsKnown() {
		e.source, e.from = source.AsString(), content.Attributes["source"].Expr.Range()
	}
	enabled, diags := constant(content.Attributes["enabled"], cty.Bool, l.cluster.context())
	l.report(diags...)
	e.enabled = !enabled.IsKnown() || enabled.True()
	askedBy, diags := constant(content.Attributes["asked_by"], cty.String, nil)
	l.report(diags...)
	if askedBy.IsKnown() {
		e.askedBy, e.askedAt = askedBy.AsString(), content.Attributes["asked_by"].Expr.Range()
	}
	seen := make(map[string]hcl.Range)
	for _, g := range content.Blocks {
		x, diags := readBlock(g)
		l.report(diags...)
		if first := seen[x.key()]; first.Filename != "" {
			l.report(problem(x.at, "stage "+e.name+": second block gate "+x.key(), "The first one is at %s.", place(first)))
			continue
		}
		seen[x.key()] = x.at
		e.gates = append(e.gates, x)
	}
	return e
}

// timeout returns the first of the timeouts that is set, or 0.
func (l *loader) timeout(exprs ...hcl.Expression) time.Duration {
	for _, expr := range exprs {
		if expr == nil {
			continue
		}
		v, diags := constant(&hcl.Attribute{Expr: expr}, cty.String, l.cluster.context())
		l.report(diags...)
		if !v.IsKnown() {
			return 0
		}
		if err := gate.ValidDuration(v); err != nil {
			l.report(problem(expr.Range(), "timeout: unsuitable value", "%s.", err))
		}
		return gate.Values{"timeout": v}.Duration("timeout")
	}
	return 0
}

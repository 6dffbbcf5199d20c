// Package outline reads which stages a cluster.hcl lists, and reads none of them, so that it is quick.
package outline

import (
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Stage is a stage that the file of a cluster lists.
type Stage struct {
	Name, Source string
	Disabled     bool // by a constant
}

// Layer is the layer of the stage.
func (s Stage) Layer() string { return path.Dir(s.Source) }

// Enabled returns the stages that the file of a cluster, "blue/proxmox", enables. A stage whose enabled is an
// expression counts as enabled.
func Enabled(repository, cluster string) ([]Stage, error) {
	all, err := Stages(repository, cluster)
	return slices.DeleteFunc(all, func(s Stage) bool { return s.Disabled }), err
}

// Stages returns all stages that the file of a cluster lists.
func Stages(repository, cluster string) ([]Stage, error) {
	path := filepath.Join(repository, "clusters", filepath.FromSlash(cluster), "cluster.hcl")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, diags := hclsyntax.ParseConfig(data, path, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	var stages []Stage
	for _, b := range f.Body.(*hclsyntax.Body).Blocks {
		if b.Type != "stage" || len(b.Labels) != 1 {
			continue
		}
		s := Stage{Name: b.Labels[0], Disabled: constant(b, "enabled").RawEquals(cty.False)}
		if source := constant(b, "source"); source.Type() == cty.String && source.IsWhollyKnown() {
			s.Source = source.AsString()
		}
		stages = append(stages, s)
	}
	return stages, nil
}

// constant returns an attribute that is a constant, else a value of no type.
func constant(b *hclsyntax.Block, name string) cty.Value {
	if attr := b.Body.Attributes[name]; attr != nil {
		if v, diags := attr.Expr.Value(nil); !diags.HasErrors() && !v.IsNull() {
			return v
		}
	}
	return cty.DynamicVal
}

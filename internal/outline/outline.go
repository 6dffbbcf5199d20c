// Package outline reads which stages a cluster.hcl lists, and reads none of them, so that it is quick. It
// also suggests blocks for such a file.
package outline

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/syntax"
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

// Sources returns the sources of the stages that each cluster of the repository lists; nil for a cluster that
// castle cannot read.
func Sources(repository string) map[string][]string {
	all := make(map[string][]string)
	names, _ := folders.Clusters(repository) //nolint:errcheck // castle check reports the others
	for _, name := range names {
		stages, err := Stages(repository, name)
		if all[name] = []string{}; err != nil {
			all[name] = nil
		}
		for _, s := range stages {
			all[name] = append(all[name], s.Source)
		}
	}
	return all
}

// Texts returns the files that the function file reads for a cluster, relative to the repository: those of
// its cluster.hcl, and of the stage.hcl files of its stages. unknown is whether there may be others, because
// only a run knows a path.
func Texts(repository, cluster string) (files []string, unknown bool) {
	texts := []string{path.Join("clusters", cluster, "cluster.hcl")}
	stages, _ := Stages(repository, cluster) //nolint:errcheck // castle check reports it
	for _, s := range stages {
		texts = append(texts, path.Join("stages", s.Source, "stage.hcl"))
	}
	name, platform, _ := strings.Cut(cluster, "/")
	known := &hcl.EvalContext{Functions: syntax.Functions(), Variables: map[string]cty.Value{
		"cluster": cty.ObjectVal(map[string]cty.Value{"name": cty.StringVal(name),
			"platform": cty.StringVal(platform)})}}
	visit := func(n hclsyntax.Node) hcl.Diagnostics {
		call, is := n.(*hclsyntax.FunctionCallExpr)
		if !is || call.Name != "file" || len(call.Args) != 1 {
			return nil
		}
		v, diags := call.Args[0].Value(known)
		if text := path.Join("clusters", cluster, syntax.Text(v)); diags.HasErrors() || !v.IsKnown() {
			unknown = true
		} else if filepath.IsLocal(text) {
			files = append(files, text)
		}
		return nil
	}
	for _, text := range texts {
		data, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(text)))
		f, _ := hclsyntax.ParseConfig(data, text, hcl.InitialPos) //nolint:errcheck // likewise
		if err == nil {                                           // else castle itself has the stage
			_ = hclsyntax.VisitAll(f.Body.(*hclsyntax.Body), visit) // visit finds no problems
		}
	}
	return files, unknown
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

// Group are names that the same stages have.
type Group struct{ Names, Sources []string }

// Groups assigns names to as few stages as possible; a name that none has is a group of its own.
func Groups(names, sources []string, has func(source, name string) bool) []Group {
	var all []Group
	for len(names) > 0 {
		var best Group
		for _, source := range sources {
			lacks := func(name string) bool { return !has(source, name) }
			found := slices.DeleteFunc(slices.Clone(names), lacks)
			switch {
			case len(found) > len(best.Names):
				best = Group{found, []string{source}}
			case len(found) > 0 && slices.Equal(found, best.Names):
				best.Sources = append(best.Sources, source)
			}
		}
		if len(best.Names) == 0 {
			best.Names = slices.Clone(names[:1])
		}
		all = append(all, best)
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(best.Names, name) })
	}
	return all
}

// Blocks are the blocks of cluster.hcl that list stages, to choose from.
func Blocks(sources []string) string {
	return strings.Join(xslices.Map(sources, func(source string) string {
		return fmt.Sprintf("stage %q { source = %q }", path.Base(source), source)
	}), " or ")
}

// Package outline reads a cluster.hcl alone, so that it is quick: the stages that it lists, the labels of the
// cluster, and which files of the repository the cluster depends on. It also suggests blocks for such a file.
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
	"github.com/ephemeral-castle/castle/internal/labels"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// SharedFile holds the values of all clusters in clusters/, or of all of one name in clusters/<name>/.
const SharedFile = "common.tfvars"

// Cluster is what the file of a cluster says.
type Cluster struct {
	Stages []Stage           // all that it lists
	Labels map[string]string // without those that every cluster has
	File   *hcl.File         // for quoting the lines of problems; nil if it is not readable

	repository, name string
}

// Stage is a stage that the file of a cluster lists.
type Stage struct {
	Name, Source string
	Disabled     bool // by a constant
}

// Layer is the layer of the stage.
func (s Stage) Layer() string { return path.Dir(s.Source) }

// Read reads the file of a cluster, such as "blue/proxmox".
func Read(repository, cluster string) (Cluster, hcl.Diagnostics) {
	c := Cluster{repository: repository, name: cluster}
	name := path.Join("clusters", cluster, "cluster.hcl")
	src, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
	if err != nil {
		return c, hcl.Diagnostics{syntax.Problem(syntax.WholeFile(name), name+": not readable", "%s.", err)}
	}
	var diags hcl.Diagnostics
	if c.File, diags = syntax.Parse(src, name); diags.HasErrors() {
		return c, diags
	}
	for _, b := range c.File.Body.(*hclsyntax.Body).Blocks {
		switch attr := b.Body.Attributes["labels"]; {
		case b.Type == "cluster" && attr != nil:
			c.Labels, diags = labels.Read(attr.AsHCLAttribute())
		case b.Type == "stage" && len(b.Labels) == 1:
			s := Stage{Name: b.Labels[0], Disabled: constant(b, "enabled").RawEquals(cty.False)}
			if source := constant(b, "source"); source.Type() == cty.String && source.IsWhollyKnown() {
				s.Source = source.AsString()
			}
			c.Stages = append(c.Stages, s)
		}
	}
	return c, diags
}

// Enabled returns the stages that are enabled. One whose enabled is an expression counts as enabled.
func (c Cluster) Enabled() []Stage {
	return slices.DeleteFunc(slices.Clone(c.Stages), func(s Stage) bool { return s.Disabled })
}

// Sources returns the sources of the stages that each cluster lists; nil if castle cannot read it.
func Sources(repository string) map[string][]string {
	all := make(map[string][]string)
	names, _ := folders.Clusters(repository) //nolint:errcheck // castle check reports the others
	for _, name := range names {
		c, diags := Read(repository, name)
		if all[name] = []string{}; diags.HasErrors() && c.Stages == nil {
			all[name] = nil
		}
		for _, s := range c.Stages {
			all[name] = append(all[name], s.Source)
		}
	}
	return all
}

// Dependencies returns the files of the repository that the cluster depends on, there or not. A folder ends
// with a slash, and stands for all in it. "" is the whole repository: only a run knows the path of a text
// that the function file reads.
func (c Cluster) Dependencies() []string {
	all := []string{"castle.hcl", path.Join("clusters", SharedFile),
		path.Join("clusters", path.Dir(c.name), SharedFile), path.Join("clusters", c.name) + "/"}
	files := []*hcl.File{c.File}
	for _, s := range c.Stages {
		folder := path.Join("stages", s.Source)
		all = append(all, folder+"/")
		src, err := os.ReadFile(filepath.Join(c.repository, filepath.FromSlash(folder), "stage.hcl"))
		if err == nil { // else castle itself has the stage
			f, _ := syntax.Parse(src, folder) //nolint:errcheck // castle check reports it
			files = append(files, f)
		}
	}
	name, platform, _ := strings.Cut(c.name, "/")
	names := &hcl.EvalContext{Functions: syntax.Functions(), Variables: map[string]cty.Value{
		"cluster": cty.ObjectVal(map[string]cty.Value{"name": cty.StringVal(name),
			"platform": cty.StringVal(platform)})}}
	visit := func(n hclsyntax.Node) hcl.Diagnostics {
		call, is := n.(*hclsyntax.FunctionCallExpr)
		if !is || call.Name != "file" || len(call.Args) != 1 {
			return nil
		}
		v, diags := call.Args[0].Value(names)
		if text := path.Join("clusters", c.name, syntax.Text(v)); diags.HasErrors() || !v.IsKnown() {
			all = append(all, "")
		} else if filepath.IsLocal(text) {
			all = append(all, text)
		}
		return nil
	}
	for _, f := range files {
		if f != nil {
			_ = hclsyntax.VisitAll(f.Body.(*hclsyntax.Body), visit) // visit finds no problems
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
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

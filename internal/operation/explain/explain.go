// Package explain says where the value of a variable comes from: every place that sets it, which of them wins
// for which stage, and what each stage gets. It reads the configuration alone, also one that has errors.
package explain

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// Variable is what one cluster does with a variable.
type Variable struct {
	Cluster   string `json:"cluster"` // blue/proxmox
	Name      string `json:"variable"`
	Sensitive bool   `json:"sensitive"` // no value is shown
	// Places are all that set the variable, the strongest first. The last may be its default.
	Places []*Place `json:"places"`
	Stages []Stage  `json:"stages"` // that declare the variable, with what each gets

	masker *secret.Masker // a value may be made of another variable, which is a secret
}

// Place sets a variable.
type Place struct {
	File string `json:"file"`           // or a flag, or a name of the environment
	Line int    `json:"line,omitempty"` // 0: it is in no file
	// Value is in JSON; "" for an expression that only a run knows, and for a secret.
	Value      string   `json:"value,omitempty"`
	Expression string   `json:"expression,omitempty"` // of inputs, as it is written
	Stages     []string `json:"used_by"`              // none: other places override it
	Default    bool     `json:"default,omitempty"`    // it declares the variable
}

// At is the place within a line of text: clusters/common.tfvars:3.
func (p *Place) At() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Stage is a stage that declares the variable.
type Stage struct {
	Name  string `json:"stage"`
	Value string `json:"value,omitempty"` // as that of a place
	From  string `json:"from"`            // clusters/common.tfvars:3; empty: it has no value
}

// Result is the answer of all clusters.
type Result struct {
	Variables   []*Variable // of the clusters that know the name
	Known       []string    // the names of all other variables, for a suggestion
	Diagnostics hcl.Diagnostics
	Files       map[string]*hcl.File
}

// Run explains a variable in the named clusters, or in all of the repository.
func Run(o cluster.Options, name string, clusters []string) (*Result, error) {
	if len(clusters) == 0 {
		all, err := folders.Clusters(o.Repository)
		if err != nil {
			return nil, err
		}
		clusters = all
	}
	result := &Result{Files: map[string]*hcl.File{}}
	options := o.Config()
	options.Definitions = new(config.Definitions)
	for _, one := range clusters {
		options.Cluster = one
		c, diags := config.Load(options)
		result.Diagnostics = append(result.Diagnostics, diags...)
		maps.Copy(result.Files, c.Files)
		if v := explain(c, name, o.NewMasker(c)); len(v.Places)+len(v.Stages) > 0 {
			result.Variables = append(result.Variables, v)
		}
		for _, s := range c.Stages {
			for other := range s.Variables {
				result.Known = append(result.Known, other)
			}
		}
	}
	result.Diagnostics = syntax.InOrder(syntax.Distinct(result.Diagnostics))
	return result, nil
}

// explain explains a variable of a cluster.
func explain(c *config.Cluster, name string, masker *secret.Masker) *Variable {
	v := &Variable{Cluster: c.Name + "/" + c.Platform, Name: name, Sensitive: secret.LikelyName(name),
		Places: []*Place{}, Stages: []Stage{}, masker: masker}
	for _, s := range slices.Concat(c.Stages, c.Disabled) {
		v.Sensitive = v.Sensitive || s.Variables[name].Sensitive
	}
	for _, w := range c.Settings(name, nil) {
		v.Sensitive = v.Sensitive || path.Base(w.At().Filename) == "secrets.tfvars" // also of numbers
	}
	v.add(c, c.Settings(name, nil))
	for _, s := range c.Stages {
		if _, declares := s.Variables[name]; !declares {
			continue
		}
		got := Stage{Name: s.Name}
		if places := v.add(c, c.Settings(name, s)); len(places) > 0 {
			places[len(places)-1].Default = !s.Variables[name].Required
			got.From, got.Value = places[0].At(), v.text(s.Written(name).Value)
			places[0].Stages = append(places[0].Stages, s.Name)
		}
		v.Stages = append(v.Stages, got)
	}
	return v
}

// add adds places, the strongest first, to those that are known, and returns them.
func (v *Variable) add(c *config.Cluster, settings []config.Written) []*Place {
	after := 0
	return xslices.Map(settings, func(w config.Written) *Place {
		at := w.At()
		p := &Place{File: at.Filename, Line: at.Start.Line, Value: v.text(w.Value), Stages: []string{}}
		if at.Empty() {
			p.Line = 0
		}
		if f := c.Files[at.Filename]; f != nil && p.Value == "" && !v.Sensitive {
			p.Expression = v.masker.Hide(string(w.Range().SliceBytes(f.Bytes)))
		}
		i := slices.IndexFunc(v.Places, func(q *Place) bool { return q.File == p.File && q.Line == p.Line })
		if i < 0 {
			i = after
			v.Places = slices.Insert(v.Places, i, p)
		}
		after = i + 1
		return v.Places[i]
	})
}

// text is a value in JSON; empty for one that is not known, and for a secret.
func (v *Variable) text(value cty.Value) string {
	if v.Sensitive || value == cty.NilVal || !value.IsWhollyKnown() {
		return ""
	}
	data, err := ctyjson.SimpleJSONValue{Value: value}.MarshalJSON()
	if err != nil {
		return ""
	}
	return v.masker.Hide(string(data))
}

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// inClusterProviders are the providers that castle configures where a module does not.
func inClusterProviders() []string {
	return []string{"registry.terraform.io/hashicorp/helm", "registry.terraform.io/hashicorp/kubernetes"}
}

// readModule reads the Terraform files of a root module, also through terraform-config-inspect.
func (d *definition) readModule(folder string) {
	entries, err := fs.ReadDir(d.stage.Module, ".")
	if err != nil {
		d.diags.add(hcl.Range{}, "stage "+d.stage.Source+": not readable", "%s.", err)
	}
	module := tfconfig.NewModule(folder)
	for _, e := range entries {
		name := e.Name()
		terraform := strings.HasSuffix(name, ".tf") || strings.HasSuffix(name, ".tf.json")
		if e.IsDir() || strings.HasPrefix(name, ".") || !terraform {
			continue
		}
		f, diags := d.read(name, path.Join(folder, name))
		d.diags.report(diags...)
		d.incomplete = d.incomplete || diags.HasErrors()
		if f == nil {
			continue
		}
		d.files[name] = f
		d.diags.report(tfconfig.LoadModuleFromFile(f, module)...)
		d.readDeclarations(f, module)
	}
	d.readProviders(module)
}

// read parses one file of the folder, which diagnostics call name.
func (d *definition) read(file, name string) (*hcl.File, hcl.Diagnostics) {
	f, diags := readFile(d.stage.Module, file, name)
	if f != nil {
		d.sources[name] = f
	}
	return f, diags
}

// readProviders lists the providers that the module requires, and those of them that castle configures.
func (d *definition) readProviders(module *tfconfig.Module) {
	s := &d.stage
	for _, resources := range []map[string]*tfconfig.Resource{module.ManagedResources, module.DataResources} {
		for _, r := range resources {
			s.Providers[r.Provider.Name] = providers.Address(r.Provider.Name, "")
		}
	}
	for name, r := range module.RequiredProviders {
		s.Providers[name] = providers.Address(name, r.Source)
		d.versions[name] = strings.Join(r.VersionConstraints, ", ")
	}
	made := make(map[string]bool)
	for _, r := range module.ManagedResources {
		d.resources[r.Type+"."+r.Name] = true
		made[s.Providers[r.Provider.Name]] = true
	}
	if len(module.ModuleCalls) > 0 { // what is in them may use any of these, and more
		made[""] = true
	}
	s.ResourceProviders = slices.Sorted(maps.Keys(made))
	for name, address := range s.Providers {
		configures := func(c *tfconfig.ProviderConfig) bool { return c.Name == name }
		if slices.Contains(inClusterProviders(), address) &&
			!slices.ContainsFunc(slices.Collect(maps.Values(module.ProviderConfigs)), configures) {
			s.InCluster = append(s.InCluster, address)
		}
	}
	slices.Sort(s.InCluster)
}

func (d *definition) readDeclarations(f *hcl.File, module *tfconfig.Module) {
	content, _, _ := f.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "variable", LabelNames: []string{"name"}},
		{Type: "output", LabelNames: []string{"name"}},
	}}) // terraform-config-inspect reports the errors
	for _, b := range content.Blocks {
		name := b.Labels[0]
		if b.Type == "output" {
			o := module.Outputs[name]
			d.stage.Outputs[name] = Output{name, o.Description, o.Sensitive, b.DefRange}
		} else {
			d.stage.Variables[name] = d.diags.readVariable(b, module.Variables[name])
		}
	}
}

func (p *problems) readVariable(b *hcl.Block, inspected *tfconfig.Variable) Variable {
	v := Variable{Name: inspected.Name, Description: inspected.Description, Sensitive: inspected.Sensitive,
		Required: true, constraint: cty.DynamicPseudoType, literal: true, nullable: true,
		declared: b.DefRange}
	content, _, diags := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "type"}, {Name: "default"}, {Name: "nullable"},
	}})
	p.report(diags...)
	// Terraform reports an unsuitable nullable itself; here it counts as absent.
	if x := new(problems).constant(content.Attributes["nullable"], cty.Bool, nil); x.IsKnown() {
		v.nullable = x.True()
	}
	if attr, ok := content.Attributes["type"]; ok {
		v.constraint, v.defaults = p.readType(attr.Expr)
		v.literal = v.constraint.IsPrimitiveType()
	}
	v.Type = v.constraint.WithoutOptionalAttributesDeep()
	if attr, ok := content.Attributes["default"]; ok {
		x, diags := attr.Expr.Value(nil)
		p.report(syntax.Plain(diags)...)
		fallback, err := v.convert(x)
		if err != nil && !diags.HasErrors() {
			p.add(attr.Expr.Range(), "variable "+v.Name+": unsuitable default", "%s.", err)
		}
		v.Required, v.fallback = false, fallback
		if err != nil || diags.HasErrors() {
			v.fallback = cty.UnknownVal(v.Type)
		}
	}
	return v
}

// readType reads a type, with the defaults of optional attributes.
func (p *problems) readType(expr hcl.Expression) (cty.Type, *typeexpr.Defaults) {
	switch hcl.ExprAsKeyword(expr) { // Terraform's old words for collections of anything
	case "list":
		return cty.List(cty.DynamicPseudoType), nil
	case "map":
		return cty.Map(cty.DynamicPseudoType), nil
	}
	ty, defaults, diags := typeexpr.TypeConstraintWithDefaults(expr)
	p.report(diags...)
	if diags.HasErrors() {
		return cty.DynamicPseudoType, nil
	}
	return ty, defaults
}

// Default returns the variable's default, and false where it has none.
func (v Variable) Default() (cty.Value, bool) { return v.fallback, !v.Required }

// Declared is where the module declares the variable.
func (v Variable) Declared() hcl.Range { return v.declared }

// settle returns the value of the variable where it is set to x.
func (v Variable) settle(x cty.Value) (cty.Value, error) {
	if x.IsNull() && !v.nullable {
		if v.Required {
			return cty.NilVal, v.mismatch(errors.New("null is not allowed"))
		}
		return v.fallback, nil
	}
	x, err := v.convert(x)
	return x, v.mismatch(err)
}

// mismatch adds the variable's type and place to an error.
func (v Variable) mismatch(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w. The variable is %s, declared at %s", err, typeexpr.TypeString(v.Type),
		syntax.Place(v.declared))
}

func (v Variable) convert(x cty.Value) (cty.Value, error) {
	if v.defaults != nil {
		x = v.defaults.Apply(x)
	}
	return syntax.Convert(x, v.constraint)
}

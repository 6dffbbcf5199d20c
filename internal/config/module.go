package config

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/zclconf/go-cty/cty"
)

// inClusterProviders are the providers that castle configures where a module does not.
func inClusterProviders() []string {
	return []string{"registry.terraform.io/hashicorp/helm", "registry.terraform.io/hashicorp/kubernetes"}
}

func parse(src []byte, name string) (*hcl.File, hcl.Diagnostics) {
	if strings.HasSuffix(name, ".json") {
		return json.Parse(src, name)
	}
	return hclsyntax.ParseConfig(src, name, hcl.InitialPos)
}

// readModule reads the Terraform files of a root module. Types, defaults and places
// come from the files themselves, the rest from terraform-config-inspect.
func (d *definition) readModule(l *library, folder string) {
	entries, err := fs.ReadDir(d.module, ".")
	if err != nil {
		d.report(problem(hcl.Range{}, "stage "+d.source+": not readable", "%s.", err))
		return
	}
	module := tfconfig.NewModule(folder)
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), ".tf") &&
			!strings.HasSuffix(e.Name(), ".tf.json") {
			continue
		}
		f, diags := l.read(d.module, e.Name(), path.Join(folder, e.Name()), true)
		d.report(diags...)
		if diags.HasErrors() || f == nil {
			continue
		}
		d.files[e.Name()] = f
		d.report(tfconfig.LoadModuleFromFile(f, module)...)
		d.readDeclarations(f)
	}
	for name, v := range module.Variables {
		own := d.variables[name]
		own.Description, own.Sensitive = v.Description, v.Sensitive
		d.variables[name] = own
	}
	for name, o := range module.Outputs {
		own := d.outputs[name]
		own.Description, own.Sensitive = o.Description, o.Sensitive
		d.outputs[name] = own
	}
	d.resources = make(map[string]bool)
	for _, r := range module.ManagedResources {
		d.resources[r.Type+"."+r.Name] = true
	}
	d.readProviders(module)
}

// readProviders lists the providers that the module requires, by required_providers or
// by a resource, and those of them that castle configures.
func (d *definition) readProviders(module *tfconfig.Module) {
	d.providers = make(map[string]string)
	for _, resources := range []map[string]*tfconfig.Resource{module.ManagedResources, module.DataResources} {
		for _, r := range resources {
			d.providers[r.Provider.Name] = sourceAddress(r.Provider.Name, "")
		}
	}
	d.versions = make(map[string]string)
	for name, r := range module.RequiredProviders {
		d.providers[name] = sourceAddress(name, r.Source)
		d.versions[name] = strings.Join(r.VersionConstraints, ", ")
	}
	made := make(map[string]bool)
	for _, r := range module.ManagedResources {
		made[d.providers[r.Provider.Name]] = true
	}
	if len(module.ModuleCalls) > 0 { // what is in them may use any of these, and more
		made[""] = true
	}
	d.resourceProviders = slices.Sorted(maps.Keys(made))
	configured := make(map[string]bool)
	for _, c := range module.ProviderConfigs {
		configured[c.Name] = true
	}
	for name, address := range d.providers {
		if slices.Contains(inClusterProviders(), address) && !configured[name] {
			d.inCluster = append(d.inCluster, address)
		}
	}
	slices.Sort(d.inCluster)
}

// sourceAddress completes a provider's source as Terraform does.
func sourceAddress(local, source string) string {
	switch {
	case source == "" && local == "terraform":
		return "terraform.io/builtin/terraform"
	case source == "":
		source = "hashicorp/" + local
	}
	if strings.Count(source, "/") == 1 {
		source = "registry.terraform.io/" + source
	}
	return source
}

func (d *definition) readDeclarations(f *hcl.File) {
	content, _, _ := f.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "variable", LabelNames: []string{"name"}},
		{Type: "output", LabelNames: []string{"name"}},
	}}) // terraform-config-inspect reports the errors
	for _, b := range content.Blocks {
		name := b.Labels[0]
		if b.Type == "output" {
			d.outputs[name] = Output{Name: name, declared: b.DefRange}
			continue
		}
		v, diags := readVariable(b)
		d.variables[name] = v
		d.report(diags...)
	}
}

func readVariable(b *hcl.Block) (Variable, hcl.Diagnostics) {
	v := Variable{Name: b.Labels[0], Type: cty.DynamicPseudoType, Required: true, literal: true,
		nullable: true, declared: b.DefRange}
	v.constraint.ty = cty.DynamicPseudoType
	content, _, diags := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "type"}, {Name: "default"}, {Name: "nullable"},
	}})
	// Terraform reports an unsuitable nullable itself; here it counts as absent.
	if x, _ := constant(content.Attributes["nullable"], cty.Bool, nil); x.IsKnown() {
		v.nullable = x.True()
	}
	if attr, ok := content.Attributes["type"]; ok {
		c, more := readConstraint(attr.Expr)
		diags = append(diags, more...)
		v.constraint, v.Type, v.literal = c, c.ty.WithoutOptionalAttributesDeep(), c.ty.IsPrimitiveType()
	}
	if attr, ok := content.Attributes["default"]; ok {
		x, more := attr.Expr.Value(nil)
		diags = append(diags, plain(more)...)
		v.Required, v.fallback = false, cty.UnknownVal(v.Type)
		if !more.HasErrors() {
			var err error
			if v.fallback, err = v.constraint.convert(x); err != nil {
				v.fallback = cty.UnknownVal(v.Type)
				diags = append(diags, problem(attr.Expr.Range(), "variable "+v.Name+": unsuitable default",
					"%s.", err))
			}
		}
	}
	return v, diags
}

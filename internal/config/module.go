package config

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"

	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/providers"
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
	inspected := tfconfig.NewModule(folder)
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
		d.diags.report(tfconfig.LoadModuleFromFile(f, inspected)...)
		d.diags.report(module.Read(f, inspected, d.stage.Variables, d.stage.Outputs)...)
	}
	d.readProviders(inspected)
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

package providers

import (
	"io/fs"
	"path"
	"strings"

	"github.com/hashicorp/terraform-config-inspect/tfconfig"
)

// Required returns the providers that a module and the modules in its folder require: the version constraints
// by source address. Modules from elsewhere are left out.
func Required(module fs.FS) (map[string]string, error) {
	required := map[string]string{}
	return required, collect(module, ".", required, map[string]bool{})
}

func collect(module fs.FS, dir string, required map[string]string, seen map[string]bool) error {
	if seen[dir] {
		return nil
	}
	seen[dir] = true
	m, diags := tfconfig.LoadModuleFromFilesystem(tfconfig.WrapFS(module), dir)
	if diags.HasErrors() {
		return diags
	}
	for name, r := range m.RequiredProviders {
		if source := Address(name, r.Source); source != builtin {
			required[source] = Join(required[source], strings.Join(r.VersionConstraints, ", "))
		}
	}
	for _, call := range m.ModuleCalls {
		if !strings.HasPrefix(call.Source, "./") && !strings.HasPrefix(call.Source, "../") {
			continue
		}
		if folder := path.Join(dir, call.Source); fs.ValidPath(folder) {
			if err := collect(module, folder, required, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

const builtin = "terraform.io/builtin/terraform"

// Address completes the source of a provider as Terraform does; name is its local name.
func Address(name, source string) string {
	switch strings.Count(source, "/") {
	case 0:
		if source == "" && name == "terraform" {
			return builtin
		}
		if source == "" {
			source = name
		}
		return "registry.terraform.io/hashicorp/" + source
	case 1:
		return "registry.terraform.io/" + source
	}
	return source
}

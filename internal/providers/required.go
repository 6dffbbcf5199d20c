package providers

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"

	"github.com/ephemeral-castle/castle/internal/module"
)

// Required returns the providers that a module and the modules in its folder require: the version constraints
// by source address. Modules from elsewhere are left out.
func Required(files fs.FS) (map[string]string, error) {
	required := map[string]string{}
	return required, module.Walk(files, ".", func(_ string, m *tfconfig.Module) error {
		for name, r := range m.RequiredProviders {
			if source := Address(name, r.Source); source != Builtin {
				required[source] = Join(required[source], strings.Join(r.VersionConstraints, ", "))
			}
		}
		return m.Diagnostics.Err()
	})
}

// Builtin is the provider that is part of Terraform.
const Builtin = "terraform.io/builtin/terraform"

// Address completes the source of a provider as Terraform does; name is its local name.
func Address(name, source string) string {
	switch strings.Count(source, "/") {
	case 0:
		if source == "" && name == "terraform" {
			return Builtin
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

// variables are the prefixes of the environment variables by which a provider finds its system, by its name.
var variables = map[string]string{"hcloud": "HCLOUD_", "infisical": "INFISICAL_",
	"proxmox": "PROXMOX_VE_", "vault": "VAULT_"}

// ReaderOf returns the name of the provider that reads an environment variable; empty if none does.
func ReaderOf(variable string) string {
	for name, prefix := range variables {
		if strings.HasPrefix(variable, prefix) {
			return name
		}
	}
	return ""
}

// Allows reports whether constraints of Terraform ("~> 3.1, != 3.1.4") allow a version. None allow any.
func Allows(constraints, chosen string) (bool, error) {
	if strings.TrimSpace(constraints) == "" {
		return true, nil
	}
	c, err := version.NewConstraint(constraints)
	if err != nil {
		return false, fmt.Errorf("version constraint %q: %w", constraints, err)
	}
	v, err := version.NewVersion(chosen)
	if err != nil {
		return false, err
	}
	return c.Check(v), nil
}

// Compatible reports whether some version satisfies all constraints. Each constraint is a range that ends at
// the version that it names, so it is enough to try those versions and their neighbours.
func Compatible(constraints ...string) (bool, error) {
	joined := Join(constraints...)
	if joined == "" {
		return true, nil
	}
	all, err := version.NewConstraint(joined)
	if err != nil {
		return false, fmt.Errorf("version constraint %q: %w", joined, err)
	}
	for _, c := range all {
		named, err := version.NewVersion(strings.TrimLeft(c.String(), "=!<>~ "))
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(neighbours(named), all.Check) {
			return true, nil
		}
	}
	return false, nil
}

const last = 1 << 30 // beyond any minor version or patch

func neighbours(v *version.Version) []*version.Version {
	s := v.Segments()
	major, minor, patch := s[0], s[1], s[2]
	all := []*version.Version{v}
	for _, n := range [][3]int{
		{major, minor, patch + 1}, {major, minor, patch - 1}, {major, minor, last}, {major, minor + 1, 0},
		{major, minor - 1, last}, {major, last, last}, {major + 1, 0, 0}, {major - 1, last, last},
	} {
		if n[0] >= 0 && n[1] >= 0 && n[2] >= 0 {
			all = append(all, version.Must(version.NewVersion(fmt.Sprintf("%d.%d.%d", n[0], n[1], n[2]))))
		}
	}
	return all
}

// Join returns the constraints as one: each once, sorted.
func Join(constraints ...string) string {
	var all []string
	for _, c := range constraints {
		for one := range strings.SplitSeq(c, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

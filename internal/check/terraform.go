package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// providerUnnamed finds resources whose provider Terraform would guess to be
// hashicorp's: kubectl_manifest means hashicorp/kubectl, which does not exist.
func providerUnnamed(c *cluster, report reporter) {
	for _, s := range c.config.Stages {
		m := tfeval.Read(s, nil)
		named := required(m)
		for _, b := range m.Blocks {
			if (b.Type != "resource" && b.Type != "data" && b.Type != "ephemeral") || len(b.Labels) != 2 {
				continue
			}
			provider, _, _ := strings.Cut(b.Labels[0], "_")
			if attr, ok := b.Body.Attributes["provider"]; ok {
				if t, diags := hcl.AbsTraversalForExpr(attr.Expr); !diags.HasErrors() {
					provider = t.RootName()
				}
			}
			if provider == "terraform" || slices.Contains(named, provider) {
				continue // terraform_data is part of Terraform
			}
			report(b.DefRange(), fmt.Sprintf("stage %s: %s belongs to a provider that is not named", s.Name, strings.Join(b.Labels, ".")),
				"required_providers names %s, so Terraform would look for hashicorp/%s, of any version. Add %s = { source = \"…\", version = \"…\" } to required_providers of %s.",
				listed(named), provider, provider, s.Source)
		}
	}
}

func required(m *tfeval.Module) []string {
	var all []string
	for _, b := range m.Blocks {
		if b.Type != "terraform" {
			continue
		}
		for _, inner := range b.Body.Blocks {
			if inner.Type == "required_providers" {
				all = append(all, names(inner.Body.Attributes)...)
			}
		}
	}
	slices.Sort(all)
	return all
}

func listed(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// validation evaluates the `validation` blocks of every variable. What needs an
// output, or a function that is not known here, is left to Terraform.
func validation(c *cluster, report reporter) {
	said := map[string]bool{} // several stages may share a variable
	for _, s := range c.config.Stages {
		values := map[string]cty.Value{}
		for name := range s.Variables {
			values[name] = s.Written(name).Value
		}
		for _, f := range tfeval.Read(s, values).FailedValidations() {
			at := s.Written(f.Variable).At()
			if key := f.Variable + f.Message + where(at); !said[key] {
				said[key] = true
				report(at, fmt.Sprintf("variable %s: not valid", f.Variable), "%s So says stage %s at %s.", f.Message, s.Name, where(f.At))
			}
		}
	}
}

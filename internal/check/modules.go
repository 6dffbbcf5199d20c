package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/config"
)

// providerUnnamed finds resources whose provider Terraform would guess to be
// hashicorp's: kubectl_manifest means hashicorp/kubectl, which does not exist.
func providerUnnamed(c *cluster, report finding) {
	for _, s := range c.config.Stages {
		m := readModule(s, nil)
		named := required(m)
		for _, b := range m.blocks {
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

func required(m *module) []string {
	var all []string
	for _, b := range m.blocks {
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
func validation(c *cluster, report finding) {
	said := map[string]bool{} // several stages may share a variable
	for _, s := range c.config.Stages {
		values := map[string]cty.Value{}
		for name := range s.Variables {
			values[name] = s.Written(name).Value
		}
		m := readModule(s, values)
		for _, b := range m.blocks {
			if b.Type != "variable" || len(b.Labels) != 1 {
				continue
			}
			for _, v := range b.Body.Blocks {
				message := m.failed(s, v)
				if v.Type != "validation" || message == "" {
					continue
				}
				name := b.Labels[0]
				at := s.Written(name).At()
				if key := name + message + where(at); !said[key] {
					said[key] = true
					report(at, fmt.Sprintf("variable %s: not valid", name), "%s So says stage %s at %s.", message, s.Name, where(v.DefRange()))
				}
			}
		}
	}
}

// failed returns the message of a validation whose condition is certainly false.
func (m *module) failed(s *config.Stage, b *hclsyntax.Block) string {
	condition, message := b.Body.Attributes["condition"], b.Body.Attributes["error_message"]
	if condition == nil || message == nil {
		return ""
	}
	v, err := m.evaluate(condition.Expr, nil)
	if err != nil {
		return ""
	}
	v, err = convert.Convert(v, cty.Bool)
	if err != nil || !v.IsKnown() || v.IsNull() || v.True() {
		return ""
	}
	says, err := m.evaluate(message.Expr, nil)
	if err != nil || text(says) == "" || m.namesSensitive(s, message.Expr) {
		return "Its condition is not met."
	}
	return text(says)
}

func (m *module) namesSensitive(s *config.Stage, expr hcl.Expression) bool {
	for _, t := range expr.Variables() {
		if t.RootName() != "var" || len(t) < 2 {
			return true
		}
		step, ok := t[1].(hcl.TraverseAttr)
		if !ok || s.Variables[step.Name].Sensitive {
			return true
		}
	}
	return false
}

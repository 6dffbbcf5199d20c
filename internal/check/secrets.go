package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// leaf is a string inside a value, and the way to it.
type leaf struct {
	steps []string
	text  string
}

func leaves(v cty.Value) []leaf {
	var all []leaf
	_ = cty.Walk(v, func(p cty.Path, v cty.Value) (bool, error) { // the function returns none
		if tfeval.Text(v) != "" {
			all = append(all, leaf{steps(p), tfeval.Text(v)})
		}
		return true, nil
	})
	return all
}

func steps(p cty.Path) []string {
	var all []string
	for _, step := range p {
		switch s := step.(type) {
		case cty.GetAttrStep:
			all = append(all, s.Name)
		case cty.IndexStep:
			if n, ok := tfeval.Whole(s.Key); ok {
				all = append(all, fmt.Sprint(n))
			} else {
				all = append(all, tfeval.Text(s.Key))
			}
		}
	}
	return all
}

// sensitive reports whether a stage calls a variable sensitive.
func (c *cluster) sensitive(variable string) bool {
	return slices.ContainsFunc(slices.Concat(c.config.Stages, c.config.Disabled), func(s *config.Stage) bool { return s.Variables[variable].Sensitive })
}

// vault is where a secret belongs.
func (c *cluster) vault() string {
	return path.Join("clusters", c.config.Name, c.config.Platform, "secrets.tfvars")
}

func secretOpen(c *cluster, report reporter) {
	for _, w := range c.config.Open() {
		if c.sensitive(w.Name) && len(leaves(w.Value)) > 0 {
			report(w.At(), fmt.Sprintf("variable %s: a secret in a file for Git", w.Name),
				"It is sensitive. Move it to %s (mode 0600, never in Git) or set TF_VAR_%s; if this file was committed, replace the secret.", c.vault(), w.Name)
		}
	}
}

func secretLikely(c *cluster, report reporter) {
	for _, w := range c.config.Open() {
		for _, l := range leaves(w.Value) {
			if certain, _ := secret.Likely(l.text); certain && !c.sensitive(w.Name) {
				report(w.At(l.steps...), fmt.Sprintf("%s: looks like a credential", dotted(w.Name, l.steps)),
					"This file belongs into Git. Take the value out of it, into Infisical, Vault or %s; if the file was committed, replace the credential.", c.vault())
			}
		}
	}
}

func secretNamed(c *cluster, report reporter) {
	for _, w := range c.config.Open() {
		for _, l := range leaves(w.Value) {
			certain, named := secret.Likely(l.text)
			named = named || len(l.steps) > 0 && secret.LikelyName(l.steps[len(l.steps)-1])
			if named && !certain && !c.sensitive(w.Name) {
				report(w.At(l.steps...), fmt.Sprintf("%s: named like a credential", dotted(w.Name, l.steps)),
					"This file belongs into Git. If the value is a secret, take it out of it, into Infisical, Vault or %s.", c.vault())
			}
		}
	}
}

func dotted(name string, steps []string) string {
	return strings.Join(append([]string{name}, steps...), ".")
}

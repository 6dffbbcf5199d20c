package check

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// requirement is what one stage requires of a provider.
type requirement struct {
	stage, source, constraints string
	written                    string // the source, as it is written
	at                         hcl.Range
}

// requirements reads required_providers of all stages, in their order.
func (c *cluster) requirements() (all []requirement) {
	for _, s := range c.config.Stages {
		for _, b := range tfeval.Read(s, nil).Blocks {
			for _, inner := range b.Body.Blocks {
				if b.Type != "terraform" || inner.Type != "required_providers" {
					continue
				}
				for _, name := range names(inner.Body.Attributes) {
					attr := inner.Body.Attributes[name]
					value, diags := attr.Expr.Value(nil)
					if diags.HasErrors() { // an alias names another provider
						value, _ = attr.Expr.Value(&hcl.EvalContext{Variables: map[string]cty.Value{
							name: cty.DynamicVal}})
					}
					fields := tfeval.Map(value)
					written, version := tfeval.Text(fields["source"]), tfeval.Text(fields["version"])
					all = append(all, requirement{s.Name, providers.Address(name, written), version, written,
						attr.SrcRange})
				}
			}
		}
	}
	return all
}

// embedded is 1 for a stage of castle's own, and 0 for the user's.
func (r requirement) embedded() int { return strings.Count(r.at.Filename, "<embedded>") }

// checkOpenTofu finds what OpenTofu would read otherwise than Terraform, and castle, do.
func checkOpenTofu(c *cluster, report reporter) {
	if c.config.Program != "tofu" {
		return
	}
	for _, s := range c.config.Stages {
		files, _ := fs.Glob(s.Module, "*.tofu") // the pattern is well-formed
		for _, name := range files {
			at := hcl.Range{Filename: path.Join("stages", s.Source, name)}
			at.Start, at.End = hcl.InitialPos, hcl.InitialPos
			report("tofu-file", at, "stage "+s.Name+": "+name+" would replace a file that castle reads",
				"castle reads a stage's .tf files alone. Rename it so that it ends in .tf.")
		}
	}
	for _, r := range c.requirements() {
		if r.source != providers.Builtin && strings.Count(r.written, "/") < 2 {
			name := cmp.Or(r.written, providers.Short(r.source))
			report("provider-host", r.at,
				fmt.Sprintf("stage %s: provider %q without a registry's host", r.stage, name),
				"OpenTofu would read it from registry.opentofu.org, whose packages have other checksums. "+
					"Write source = %q, or the other registry's host.", r.source)
		}
	}
}

// checkProviderVersions finds stages that require versions of a provider that exclude each other, or the
// version in the lock file: a cluster has one version of each provider.
func checkProviderVersions(c *cluster, report reporter) {
	file := filepath.Join(c.config.Dir, providers.FileName)
	locked, err := providers.ReadFile(file, os.ReadFile)
	place := file
	if relative, err := filepath.Rel(c.options.Repository, file); err == nil {
		place = relative
	}
	if err != nil {
		summary := "the recorded providers: not readable"
		at, text := hcl.Range{}, strings.TrimPrefix(err.Error(), file+": ")+"."
		if d := syntaxError(file, err); d != nil {
			summary += ": " + strings.ToLower(d.Summary[:1]) + d.Summary[1:]
			at, text = syntax.Subject(d), d.Detail
		}
		at.Filename = place
		report("provider-lock", at, summary, "%s Correct the file, or restore it from Git.", text)
	}
	bySource := map[string][]requirement{}
	for _, r := range c.requirements() {
		bySource[r.source] = append(bySource[r.source], r)
	}
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		all, short := bySource[source], providers.Short(source)
		var sound []requirement // castle's own stages come first: the user can change the others
		slices.SortStableFunc(all, func(a, b requirement) int { return b.embedded() - a.embedded() })
		for _, r := range all {
			excludes := func(other requirement) bool {
				ok, err := providers.Compatible(other.constraints, r.constraints)
				return !ok && err == nil
			}
			if _, err := providers.Compatible(r.constraints); err != nil {
				report("provider-constraint", r.at, fmt.Sprintf("stage %s: unsuitable version of %s", r.stage,
					short), `%q is no constraint. Write one such as "~> 3.1".`, r.constraints)
			} else if i := slices.IndexFunc(sound, excludes); i < 0 {
				sound = append(sound, r)
			} else {
				report("provider-conflict", r.at, fmt.Sprintf("stage %s: no version of %s suits stage %s too",
					r.stage, short, sound[i].stage),
					"It requires %s; stage %s requires %s, %s. A cluster has one version of each provider. "+
						"Change one of the two.", r.constraints, sound[i].stage, sound[i].constraints,
					syntax.Place(sound[i].at))
			}
		}
		entry, is := locked[source]
		all = slices.DeleteFunc(all, func(r requirement) bool {
			ok, err := providers.Allows(r.constraints, entry.Version)
			return !is || ok || err != nil
		})
		if len(all) > 0 {
			c.reportLocked(all, short, entry.Version, place, report)
		}
	}
}

// reportLocked reports that stages exclude the version in the lock file.
func (c *cluster) reportLocked(all []requirement, provider, version, place string, report reporter) {
	var stages, constraints []string
	for _, r := range all {
		stages, constraints = append(stages, r.stage), append(constraints, r.constraints)
	}
	noun, verb := "stage", "It requires"
	if len(all) > 1 {
		noun, verb = "stages", "They require"
	}
	report("provider-lock", all[0].at,
		fmt.Sprintf("%s %s: %s %s is recorded", noun, strings.Join(stages, ", "), provider, version),
		"%s %s, and %s records %s. Run castle providers upgrade %s.", verb, providers.Join(constraints...),
		place, version, c.label)
}

// syntaxError is the first error in the text of a lock file; nil if its text is sound.
func syntaxError(file string, err error) *hcl.Diagnostic {
	text, unread := os.ReadFile(file)
	parsed, diags := syntax.Parse(text, file)
	decoding, is := errors.AsType[hcl.Diagnostics](err)
	switch {
	case unread != nil || !is:
		return nil
	case diags.HasErrors():
		return diags[0]
	}
	return syntax.Reduce(parsed, decoding)[0]
}

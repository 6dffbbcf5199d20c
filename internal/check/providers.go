package check

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// requirement is what one stage requires of a provider.
type requirement struct {
	stage, source, constraints string
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
					source := providers.Address(name, tfeval.Text(fields["source"]))
					version := tfeval.Text(fields["version"])
					all = append(all, requirement{s.Name, source, version, attr.SrcRange})
				}
			}
		}
	}
	return all
}

// embedded is 1 for a stage of castle's own, and 0 for the user's.
func (r requirement) embedded() int { return strings.Count(r.at.Filename, "<embedded>") }

// checkProviderVersions finds stages that require versions of a provider that exclude each other, or the
// version in the lock file: a cluster has one version of each provider.
func checkProviderVersions(c *cluster, report reporter) {
	file := filepath.Join(c.config.Dir, providers.FileName)
	locked, err := providers.ReadFile(file)
	path := file
	if relative, err := filepath.Rel(c.options.Repository, file); err == nil {
		path = relative
	}
	if err != nil {
		at, text := hcl.Range{}, strings.TrimPrefix(err.Error(), file+": ")+"."
		if diags, is := errors.AsType[hcl.Diagnostics](err); is && diags[0].Subject != nil {
			at, text = *diags[0].Subject, diags[0].Detail
		}
		at.Filename = path
		report("provider-lock", at, "the recorded providers: not readable", "%s Restore the file from Git.",
			text)
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
					config.Place(sound[i].at))
			}
			entry, is := locked[source]
			if ok, err := providers.Allows(r.constraints, entry.Version); !is || ok || err != nil {
				continue
			}
			report("provider-lock", r.at, fmt.Sprintf("stage %s: %s %s is recorded", r.stage, short,
				entry.Version), "It requires %s, and %s records %s. Run castle providers upgrade %s.",
				r.constraints, path, entry.Version, c.config.Name+"/"+c.config.Platform)
		}
	}
}

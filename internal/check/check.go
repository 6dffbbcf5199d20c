// Package check finds errors and doubtful values in a configuration. It checks whether addresses, networks,
// names, versions and machine configurations fit one another, in a cluster and across all clusters of a
// repository. It contacts no server and runs nothing.
//
// Package config reports whether the files can be read and fit the stages' variables. A rule has a Kind,
// under which docs/check.md describes it, and checks the values that are known before a run. It reports the
// place, the problem, the reason and the fix. It skips a value that is unknown, or that config has reported
// already. A rule that can be wrong warns.
//
// The rules do not repeat the stages' own Terraform: package tfeval evaluates the `validation` blocks. A
// rule that is such a validation is identified by the values that its condition reads (rules.go). Machine
// configurations come from the patches in the module, rendered and validated by Talos' own code.
package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
)

// Options select the clusters to check.
type Options struct {
	Config   config.Options // Cluster is left open
	Clusters []string       // "blue/proxmox"; empty: every cluster of the repository
	StateDir string         // the root of castle's state; empty: not checked
}

// Report holds the findings.
type Report struct {
	Clusters    []string        // that were checked
	Diagnostics hcl.Diagnostics // by file and line
	Files       map[string]*hcl.File
}

// Run loads clusters and reports all problems at once.
func Run(o Options) (*Report, error) {
	all, err := config.Clusters(o.Config.Repository)
	if err != nil {
		return nil, err
	}
	chosen := o.Clusters
	if len(chosen) == 0 {
		chosen = all
	}
	report := &Report{Files: map[string]*hcl.File{}}
	var checked []*cluster
	for _, name := range chosen {
		options := o.Config
		options.Cluster = name
		loaded, diags := config.Load(options)
		maps.Copy(report.Files, loaded.Files)
		if loaded.Name != "" {
			c := newCluster(loaded, options)
			report.Clusters = append(report.Clusters, c.label)
			diags = c.check(diags, checked, o.StateDir)
			checked = append(checked, c)
		}
		report.Diagnostics = append(report.Diagnostics, diags...)
	}
	if len(chosen) < len(all) {
		for _, c := range checked {
			report.Diagnostics = append(report.Diagnostics, c.compare(peers(o.Config, all, c))...)
		}
	}
	report.Diagnostics = tidy(report.Diagnostics)
	return report, nil
}

// Loaded checks a cluster that has been loaded, and compares it with all others of its repository.
func Loaded(c *config.Cluster, o config.Options) (hcl.Diagnostics, error) {
	all, err := config.Clusters(o.Repository)
	if err != nil {
		return nil, err
	}
	own := newCluster(c, o)
	return tidy(own.check(nil, peers(o, all, own), "")), nil
}

// peers loads the other clusters. The command line and the environment do not apply to them.
func peers(o config.Options, all []string, c *cluster) []*cluster {
	o.Vars, o.VarFiles, o.Environ = nil, nil, nil
	var others []*cluster
	for _, name := range all {
		if o.Cluster = name; name != c.label {
			loaded, _ := config.Load(o)
			others = append(others, newCluster(loaded, o))
		}
	}
	return others
}

// check applies every rule and adds the findings to those of config.
func (c *cluster) check(diags hcl.Diagnostics, others []*cluster, stateDir string) hcl.Diagnostics {
	c.stateDir = stateDir
	for _, find := range checks() {
		find(c, c.reporter(&diags))
	}
	return append(withoutCovered(diags), c.compare(others)...)
}

// compare applies the rules about two clusters.
func (c *cluster) compare(others []*cluster) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, other := range others {
		compareMachines(c, other, c.reporter(&diags))
		compareAddresses(c, other, c.reporter(&diags))
	}
	return diags
}

// reporter receives a finding: its rule, the place, the problem, and the reason with the fix.
type reporter func(kind Kind, at hcl.Range, summary, detail string, args ...any)

func (c *cluster) reporter(diags *hcl.Diagnostics) reporter {
	return func(kind Kind, at hcl.Range, summary, detail string, args ...any) {
		r := ruleOf(kind)
		d := &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: c.masker.Hide(summary),
			Detail: c.masker.Hide(fmt.Sprintf(detail, args...)), Extra: extra{kind, r.unquoted},
		}
		if r.Warns {
			d.Severity = hcl.DiagWarning
		}
		if at.Filename != "" {
			d.Subject = at.Ptr()
		}
		*diags = append(*diags, d)
	}
}

// extra is the Extra of a diagnostic.
type extra struct {
	kind     Kind
	unquoted bool
}

// Unquoted keeps ui from printing the line: it holds a secret.
func (e extra) Unquoted() bool { return e.unquoted }

// RuleOf is the rule that a diagnostic comes from, or "" if config reported it.
func RuleOf(d *hcl.Diagnostic) Kind {
	e, _ := d.Extra.(extra)
	return e.kind
}

// tidy sorts diagnostics, removes duplicates, and lets none of them quote a line that holds a secret.
func tidy(diags hcl.Diagnostics) hcl.Diagnostics {
	var private hcl.Diagnostics
	seen := map[string]bool{}
	diags = slices.DeleteFunc(config.InOrder(diags), func(d *hcl.Diagnostic) bool {
		if e, _ := d.Extra.(extra); e.unquoted {
			private = append(private, d)
		}
		key := config.Subject(d).String() + "\x00" + d.Summary + "\x00" + d.Detail
		defer func() { seen[key] = true }()
		return seen[key]
	})
	for _, d := range diags {
		if slices.ContainsFunc(private, func(s *hcl.Diagnostic) bool { return sameLine(d, s) }) {
			d.Extra = extra{RuleOf(d), true}
		}
	}
	return diags
}

func sameLine(a, b *hcl.Diagnostic) bool {
	x, y := config.Subject(a), config.Subject(b)
	return x.Filename == y.Filename && x.Start.Line <= y.End.Line && y.Start.Line <= x.End.Line
}

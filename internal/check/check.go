// Package check finds errors and doubtful values in a configuration. It checks whether addresses, networks,
// names, versions and machine configurations fit one another, in a cluster and across all clusters of a
// repository. It contacts no server and runs nothing. A rule has a Kind, under which docs/check.md describes
// it. It reports the place, the problem, the reason and the fix; one that can be wrong warns. It skips a
// value that is unknown, or that package config has reported. The stages' own `validation` blocks are
// evaluated by package tfeval, and patches by Talos' own code.
package check

import (
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/syntax"
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
	all, _ := folders.Clusters(o.Config.Repository) //nolint:errcheck // strayFolders reports the others
	chosen := o.Clusters
	if len(chosen) == 0 {
		chosen = all
	}
	o.Config.Definitions = new(config.Definitions)
	type result struct {
		loaded *config.Cluster
		diags  hcl.Diagnostics
		own    *cluster
		peers  []*cluster
	}
	results := concurrently(chosen, func(name string) (r result) {
		options := o.Config
		options.Cluster = name
		r.loaded, r.diags = config.Load(options)
		if r.loaded.Name == "" {
			return r
		}
		r.own = newCluster(r.loaded, options)
		r.own.stateDir = o.StateDir
		others := func() []*cluster { return nil }
		if len(chosen) < len(all) {
			others = r.own.startPeers(all)
		}
		r.diags, r.peers = r.own.check(r.diags), others()
		return r
	})
	report := &Report{Files: map[string]*hcl.File{}}
	var checked []*cluster
	for _, r := range results {
		maps.Copy(report.Files, r.loaded.Files)
		report.Diagnostics = append(report.Diagnostics, r.diags...)
		if c := r.own; c != nil {
			report.Clusters = append(report.Clusters, c.label)
			report.Diagnostics = append(report.Diagnostics, c.compare(checked)...)
			report.Diagnostics = append(report.Diagnostics, c.compare(r.peers)...)
			checked = append(checked, c)
		}
	}
	if len(o.Clusters) == 0 {
		report.Diagnostics = append(report.Diagnostics, strayFolders(o.Config.Repository, all)...)
	}
	report.Diagnostics = tidy(report.Diagnostics)
	return report, nil
}

// Compared is the variable with which a castle tells one that it starts for a cluster that Clashes has found
// nothing about it: else each of a thousand would load all others.
const Compared = "CASTLE_COMPARED"

// Clashes compares all clusters of a repository, each with each, and returns those that Loaded would have
// findings about for the sake of another one.
func Clashes(o config.Options) map[string]bool {
	all, _ := folders.Clusters(o.Repository) //nolint:errcheck // castle check reports the others
	o.Definitions = new(config.Definitions)
	loaded, found := loadPeers(o, all), map[string]bool{}
	for i, c := range loaded {
		for _, other := range loaded[:i] {
			if len(c.compare([]*cluster{other})) > 0 {
				found[c.label], found[other.label] = true, true
			}
		}
	}
	return found
}

// Loaded checks a cluster that has been loaded, and compares it with all others of its repository.
func Loaded(c *config.Cluster, o config.Options) (hcl.Diagnostics, error) {
	var all []string
	if process.Getenv(o.Environ, Compared) == "" {
		all, _ = folders.Clusters(o.Repository) //nolint:errcheck // castle check reports the others
	}
	o.Definitions = new(config.Definitions)
	own := newCluster(c, o)
	others := own.startPeers(all)
	diags := own.check(nil)
	return tidy(append(diags, own.compare(others())...)), nil
}

// startPeers begins to load the other clusters, and returns a function that waits for them. The command line
// and the environment do not apply to them.
func (c *cluster) startPeers(all []string) func() []*cluster {
	others := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == c.label })
	loaded := make(chan []*cluster, 1)
	go func() { loaded <- loadPeers(c.options, others) }()
	return func() []*cluster { return <-loaded }
}

func loadPeers(o config.Options, names []string) []*cluster {
	o.Vars, o.VarFiles, o.Environ = nil, nil, nil
	return concurrently(names, func(name string) *cluster {
		options := o
		options.Cluster = name
		peer, _ := config.Load(options) // castle check of that cluster reports its problems
		return newCluster(peer, options)
	})
}

// concurrently calls do for every name, on as many processors as there are, and returns the results in order.
func concurrently[T any](names []string, do func(name string) T) []T {
	results, next := make([]T, len(names)), atomic.Int64{}
	var workers sync.WaitGroup
	for range min(len(names), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(len(names)); i = next.Add(1) {
				results[i-1] = do(names[i-1])
			}
		})
	}
	workers.Wait()
	return results
}

// check applies the rules about one cluster, and adds the findings to those of config.
func (c *cluster) check(diags hcl.Diagnostics) hcl.Diagnostics {
	c.rendered, c.damaged = render(c), diags.HasErrors()
	if len(diags) == 0 && len(c.config.Stages)+len(c.config.Disabled) == 0 {
		file := path.Join("clusters", c.label, "cluster.hcl")
		at := hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
		c.reporter(&diags)("cluster-folder", at, "no stage",
			`Write a block for each stage, such as stage "keys" { source = "secrets/keys" }.`)
	}
	for _, find := range checks() {
		find(c, c.reporter(&diags))
	}
	return c.withoutCovered(diags)
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
			Detail: c.masker.Hide(syntax.SuggestionFirst(fmt.Sprintf(detail, args...))),
			Extra:  extra{kind, r.unquoted},
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
	diags = slices.DeleteFunc(syntax.InOrder(diags), func(d *hcl.Diagnostic) bool {
		if e, _ := d.Extra.(extra); e.unquoted {
			private = append(private, d)
		}
		key := syntax.Subject(d).String() + "\x00" + d.Summary + "\x00" + d.Detail
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
	x, y := syntax.Subject(a), syntax.Subject(b)
	return x.Filename == y.Filename && x.Start.Line <= y.End.Line && y.Start.Line <= x.End.Line
}

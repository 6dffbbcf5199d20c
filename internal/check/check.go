// Package check judges what a configuration means: whether addresses, networks,
// names, versions and machine configurations fit one another, in a cluster and
// across all clusters of a repository. It asks nobody and runs nothing.
//
// How it thinks: package config says whether the files can be read and fit the
// stages' variables. Here each rule is a small function with a name, listed in
// rules(), that looks at the values as far as they are known before a run and
// reports what cannot be meant, with the place where it is written and the way
// out. A value that is not known, or that config has already found unsuitable,
// is no rule's business. A rule that is only a doubt warns.
//
// What the stages' own Terraform says is not repeated here: the conditions of
// `validation` blocks are evaluated as they stand in the module, and so are the
// patches of the machines' configurations. Where an expression needs what is not
// known here, nothing is concluded from it.
package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/secret"
)

// Options say what is checked.
type Options struct {
	Config   config.Options // Cluster is left open
	Clusters []string       // "blue/proxmox"; empty: every cluster of the repository
	StateDir string         // the root of castle's state; empty: not looked at
}

// Report is what was found.
type Report struct {
	Clusters    []string        // that were checked
	Diagnostics hcl.Diagnostics // by file and line
	Files       map[string]*hcl.File
}

// Run loads clusters and judges them, all problems at once.
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
	var seen []*cluster
	for _, name := range chosen {
		options := o.Config
		options.Cluster = name
		loaded, diags := config.Load(options)
		maps.Copy(report.Files, loaded.Files)
		if loaded.Name == "" {
			report.Diagnostics = append(report.Diagnostics, diags...)
			continue
		}
		c := newCluster(loaded)
		report.Clusters = append(report.Clusters, c.label)
		report.Diagnostics = append(report.Diagnostics, c.judge(diags, seen, o.StateDir)...)
		seen = append(seen, c)
	}
	if len(chosen) < len(all) { // the others are not judged, but must be let live
		for _, c := range seen {
			report.Diagnostics = append(report.Diagnostics, c.judgeAcross(peers(o.Config, all, c))...)
		}
	}
	report.Diagnostics = tidy(report.Diagnostics)
	return report, nil
}

// Loaded judges a cluster that has been loaded, against all others of its repository.
func Loaded(c *config.Cluster, o config.Options) (hcl.Diagnostics, error) {
	all, err := config.Clusters(o.Repository)
	if err != nil {
		return nil, err
	}
	own := newCluster(c)
	return tidy(own.judge(nil, peers(o, all, own), "")), nil
}

// peers loads the clusters beside c. What is wrong with them is not said here,
// and the command line and the environment speak of c alone.
func peers(o config.Options, all []string, c *cluster) []*cluster {
	o.Vars, o.VarFiles, o.Environ = nil, nil, nil
	var others []*cluster
	for _, name := range all {
		if name == c.label {
			continue
		}
		o.Cluster = name
		loaded, _ := config.Load(o)
		others = append(others, newCluster(loaded))
	}
	return others
}

// judge asks every rule, and adds to what reading the files has found.
func (c *cluster) judge(diags hcl.Diagnostics, others []*cluster, stateDir string) hcl.Diagnostics {
	c.stateDir = stateDir
	for _, r := range rules() {
		if r.within != nil {
			r.within(c, c.reporter(r, &diags))
		}
	}
	return append(withoutCovered(diags), c.judgeAcross(others)...)
}

// judgeAcross asks the rules that compare the cluster with others.
func (c *cluster) judgeAcross(others []*cluster) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, r := range rules() {
		if r.across == nil {
			continue
		}
		for _, other := range others {
			r.across(c, other, c.reporter(r, &diags))
		}
	}
	return diags
}

// reporter takes what a rule reports: a place, what it is about with what is wrong, and the way out.
type reporter func(at hcl.Range, summary, detail string, args ...any)

func (c *cluster) reporter(r rule, diags *hcl.Diagnostics) reporter {
	return func(at hcl.Range, summary, detail string, args ...any) {
		d := &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: c.masker.Hide(summary), Detail: c.masker.Hide(fmt.Sprintf(detail, args...)),
			Extra: mark{rule: Kind(r.name), unquoted: r.unquoted},
		}
		if r.warns {
			d.Severity = hcl.DiagWarning
		}
		if at.Filename != "" {
			d.Subject = at.Ptr()
		}
		*diags = append(*diags, d)
	}
}

// Kind names a rule: "vm-id-twice". docs/check.md lists them.
type Kind string

// mark is what a diagnostic carries beside its text.
type mark struct {
	rule     Kind
	unquoted bool
}

// Unquoted tells who writes the diagnostic that the line there holds a secret.
func (m mark) Unquoted() bool { return m.unquoted }

// RuleOf names the rule that a diagnostic comes from, or "" for the reading of the files.
func RuleOf(d *hcl.Diagnostic) Kind {
	m, _ := d.Extra.(mark)
	return m.rule
}

// tidy puts diagnostics in order, each once, and keeps a line that holds a
// secret from being quoted by another one about the same line.
func tidy(diags hcl.Diagnostics) hcl.Diagnostics {
	var kept, private hcl.Diagnostics
	said := map[string]bool{}
	for _, d := range diags {
		key := d.Summary + "\x00" + d.Detail
		if d.Subject != nil {
			key = d.Subject.String() + "\x00" + key
		}
		if said[key] {
			continue
		}
		said[key] = true
		kept = append(kept, d)
		if m, _ := d.Extra.(mark); m.unquoted {
			private = append(private, d)
		}
	}
	for _, d := range kept {
		if slices.ContainsFunc(private, func(s *hcl.Diagnostic) bool { return sameLine(d, s) }) {
			d.Extra = mark{rule: RuleOf(d), unquoted: true}
		}
	}
	slices.SortStableFunc(kept, func(a, b *hcl.Diagnostic) int {
		x, y := subject(a), subject(b)
		return cmp.Or(cmp.Compare(x.Filename, y.Filename), cmp.Compare(x.Start.Byte, y.Start.Byte), strings.Compare(a.Summary, b.Summary))
	})
	return kept
}

func sameLine(a, b *hcl.Diagnostic) bool {
	x, y := subject(a), subject(b)
	return x.Filename == y.Filename && x.Start.Line <= y.End.Line && y.Start.Line <= x.End.Line
}

func subject(d *hcl.Diagnostic) hcl.Range {
	if d.Subject == nil {
		return hcl.Range{}
	}
	return *d.Subject
}

// newMasker hides what the cluster's files call a secret, wherever a rule would say it.
func newMasker(c *config.Cluster) *secret.Masker {
	m := &secret.Masker{}
	m.Add(c.Secrets()...)
	return m
}

package config

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// loader is one Load in progress.
type loader struct {
	options Options
	cluster *Cluster
	library *library
	values  *inputValues
	gitops  *gitopsBlock // of cluster.hcl, else of castle.hcl
	// partial are the layers of which some stage could not be read. A missing name is
	// not reported there, as that stage may have it.
	partial map[string]bool
	// unset is whether a file of values could not be read: a value that is missing may be there.
	unset bool
	// ambiguous are the variables of two types.
	ambiguous map[string]bool
	diags     problems
}

// Load reads a cluster, and reports every problem at once. The Cluster is never nil,
// for its Files; it is fit for a run only if no diagnostic is an error.
func Load(o Options) (*Cluster, hcl.Diagnostics) {
	files := make(map[string]*hcl.File)
	c := &Cluster{Files: files}
	name, platform, err := folders.Resolve(o.Repository, o.Cluster)
	if err != nil {
		return c, hcl.Diagnostics{syntax.Problem(hcl.Range{}, err.Error(), "")}
	}
	c.Name, c.Platform = name, platform
	c.Dir = filepath.Join(o.Repository, "clusters", name, platform)
	l := &loader{options: o, cluster: c, library: newLibrary(o, files), partial: make(map[string]bool)}
	if l.library.sources(); l.library.definitions.misnamed != nil {
		l.diags.add(hcl.Range{}, l.library.definitions.misnamed.Error(), "")
	}
	defaults := l.readCastle()
	l.addStages(l.readCluster(), defaults.timeout)
	l.readGitOps()
	l.addOutputs()
	l.checkTypes()
	l.values = &inputValues{load: l, missing: make(map[string][]*Stage)}
	l.values.read(defaults.inputs)
	blocks := &blockReader{load: l}
	for _, s := range c.Stages {
		l.values.checkInputs(s)
		for name, v := range s.Variables {
			s.bindings[name] = l.values.binding(s, v)
		}
		blocks.add(s)
	}
	blocks.delegateGates()
	l.values.reportMissing()
	edges := &connector{load: l}
	for _, s := range c.Disabled {
		edges.connectInputs(s)
	}
	for _, s := range c.Stages {
		edges.connect(s)
	}
	l.values.reportUndeclared(edges.reportAbsent())
	edges.checkCycles()
	for _, s := range c.Stages {
		l.checkValues(s)
	}
	return c, syntax.InOrder(syntax.Distinct(l.diags.Diagnostics))
}

// file is the name of a file of the cluster in diagnostics.
func (l *loader) file(name string) string {
	return path.Join("clusters", l.cluster.Name, l.cluster.Platform, name)
}

// addStages makes a stage of every entry whose source can be found.
func (l *loader) addStages(entries []*entry, timeout *hcl.Attribute) {
	c := l.cluster
	var sources []string
	for _, e := range entries {
		if l.library.has(e.Source) {
			sources = append(sources, e.Source)
		}
	}
	l.library.prepare(sources)
	for _, e := range entries {
		layer, _, _ := strings.Cut(e.Source, "/")
		if e.Source == "" || !l.checkSource(e) {
			l.markPartial(layer)
			continue
		}
		d := l.library.definition(e.Source)
		if d.diags.HasErrors() {
			l.markPartial(layer)
		}
		s := d.stage
		s.Name, s.cluster, s.definition, s.entry = e.Name, c, d, e
		s.bindings = make(map[string]*Written)
		if e.disabled {
			c.Disabled = append(c.Disabled, &s)
			continue
		}
		l.diags.report(d.diags.Diagnostics...)
		s.Timeout = l.timeout(cmp.Or(e.settings.timeout, d.settings.timeout, timeout))
		c.Stages = append(c.Stages, &s)
	}
	byLayer := func(a, b *Stage) int { return cmp.Compare(layerIndex(a.Layer), layerIndex(b.Layer)) }
	slices.SortStableFunc(c.Stages, byLayer)
	slices.SortStableFunc(c.Disabled, byLayer)
}

func (l *loader) checkSource(e *entry) bool {
	if l.library.has(e.Source) {
		return true
	}
	sources := l.library.sources()
	layer, _, _ := strings.Cut(e.Source, "/")
	switch {
	case strings.Count(e.Source, "/") != 1 || strings.Contains(e.Source, ":"):
		base := strings.TrimSuffix(path.Base(e.Source), ".git")
		near := syntax.Hint(e.Source, sources)
		if i := slices.IndexFunc(sources, func(s string) bool { return path.Base(s) == base }); i >= 0 {
			near = fmt.Sprintf("; did you mean %q?", sources[i])
		}
		l.diags.add(e.SourceAt, "stage "+e.Name+": unsuitable source",
			"%q is not of the form <layer>/<stage>%s It is a folder of castle's stages, or of the "+
				"repository's stages/.", e.Source, near)
	case layerIndex(layer) < 0:
		l.diags.add(e.SourceAt, "stage "+e.Name+": unknown layer "+layer,
			"The layers are %s%s", strings.Join(Layers(), ", "), syntax.Hint(layer, Layers()))
	default:
		l.diags.add(e.SourceAt, "stage "+e.Name+": unknown source",
			"There is no stage %q, neither in the repository's stages/ nor in castle%s", e.Source,
			syntax.Hint(e.Source, slices.DeleteFunc(sources, func(s string) bool {
				near := syntax.Nearest(path.Base(e.Source), []string{path.Base(s)})
				return near == "" || path.Dir(s) != layer
			})))
	}
	return false
}

// markPartial notes that a stage could not be read; without a known layer it may be of any.
func (l *loader) markPartial(layer string) {
	for _, known := range Layers() {
		if layer == known || layerIndex(layer) < 0 {
			l.partial[known] = true
		}
	}
}

func layerIndex(name string) int { return slices.Index(Layers(), name) }

// addOutputs notes which stage has which output of a layer.
func (l *loader) addOutputs() {
	l.cluster.owners = make(map[string]map[string]*Stage)
	for _, layer := range Layers() {
		l.cluster.owners[layer] = make(map[string]*Stage)
	}
	for i, s := range l.cluster.Stages {
		owners := l.cluster.owners[s.Layer]
		same := func(other *Stage) bool { return other.Source == s.Source }
		if twin := slices.IndexFunc(l.cluster.Stages[:i], same); twin >= 0 && len(s.Outputs) > 0 {
			first := l.cluster.Stages[twin].Name
			l.diags.add(s.entry.At, "stage "+s.Name+": the source of stage "+first, "Both have the outputs "+
				"of %s, and %s.%s could mean either. Remove one of them, or copy the folder and rename its "+
				"outputs.", s.Source, s.Layer, slices.Min(slices.Collect(maps.Keys(s.Outputs))))
			continue
		}
		told := map[*Stage]bool{} // most often one stage too many, and not one output
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			if first := owners[name]; first == nil {
				owners[name] = s
			} else if !told[first] {
				told[first] = true
				l.diags.add(s.Outputs[name].Declared(), "layer "+s.Layer+": two stages have output "+name,
					"Stage %s has it here and stage %s at %s; %s.%s could mean either. Remove one of the "+
						"stages, or rename the outputs of one.", s.Name, first.Name,
					syntax.Place(first.Outputs[name].Declared()), s.Layer, name)
			}
		}
	}
}

// checkTypes reports variables of one name and two types: one value cannot suit both.
func (l *loader) checkTypes() {
	first := make(map[string]module.Variable)
	l.ambiguous = make(map[string]bool)
	// castle's own stages first: what differs from them is the user's to change.
	own := func(s *Stage) bool { return s.Origin != "embedded" }
	stages := slices.DeleteFunc(slices.Clone(l.cluster.Stages), own)
	stages = append(stages, l.cluster.Stages...)
	for _, s := range stages {
		for name, v := range s.Variables {
			if v.Constraint() == cty.DynamicPseudoType {
				continue
			}
			if other, ok := first[name]; !ok {
				first[name] = v
			} else if !v.Constraint().Equals(other.Constraint()) {
				l.ambiguous[name] = true
				l.diags.add(v.Declared(), "variable "+name+": two types",
					"It is %s here and %s at %s; variables of one name share their value. Give one of them "+
						"another name.",
					typeexpr.TypeString(v.Type), typeexpr.TypeString(other.Type),
					syntax.Place(other.Declared()))
			}
		}
	}
}

// checkValues evaluates all expressions of a stage, as far as they are known before a run.
func (l *loader) checkValues(s *Stage) {
	sc := Scope{unknown: true}
	_, diags := s.Inputs(sc)
	l.diags.report(diags...)
	for _, name := range slices.Sorted(maps.Keys(s.bindings)) {
		if b := s.bindings[name]; b.Value == cty.NilVal { // also what Terraform would drop
			l.diags.report(b.misfits(fmt.Sprintf("stage %s: input %s: ", s.Name, name), s.Variables[name])...)
		}
	}
	for _, b := range s.blocks() {
		_, diags := b.values(s, sc)
		l.diags.report(diags...)
	}
	duration := gate.Attribute{Type: cty.String, Valid: gate.ValidDuration}
	count := gate.Attribute{Type: cty.Number, Valid: gate.ValidCount}
	for _, g := range s.Gates {
		_, diags := g.Values(Scope{unknown: true})
		l.diags.report(diags...)
		g.Policy.Timeout = l.policy(g.Of, g.block, "timeout", duration).Duration("timeout")
		g.Policy.Stable = l.policy(g.Of, g.block, "stable", count).Int("stable")
	}
	s.extendTimeouts()
	for _, a := range s.Adopts {
		if e := a.Exists; e != nil {
			e.Policy.Timeout = l.policy(s, e.block, "timeout", duration).Duration("timeout")
		}
	}
}

// policy evaluates an argument of every gate that must be known when a run begins.
func (l *loader) policy(s *Stage, b *block, name string, takes gate.Attribute) gate.Values {
	arg, ok := b.args[name]
	if !ok {
		return nil
	}
	v, diags := b.argument(s, arg, takes, Scope{unknown: true})
	l.diags.report(diags...)
	if !diags.HasErrors() && !v.IsKnown() && len(references(arg.Expr)) > 0 && s.Sound() {
		l.diags.add(arg.Expr.Range(), b.of(s)+": "+name+" is not known before a run",
			"It can name no output.")
	}
	return gate.Values{name: v}
}

// problems collects diagnostics.
type problems struct{ hcl.Diagnostics }

func (p *problems) report(diags ...*hcl.Diagnostic) { p.Diagnostics = append(p.Diagnostics, diags...) }

// add reports an error, as problem makes it.
func (p *problems) add(at hcl.Range, summary, detail string, args ...any) {
	p.report(syntax.Problem(at, summary, detail, args...))
}

// Argument is the Extra of a diagnostic that finds an argument of a gate or preflight type unsuitable.
type Argument struct {
	Type, Name string
	Variable   string // the first that its expression names; "" if it names none
}

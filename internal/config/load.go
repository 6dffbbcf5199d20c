package config

import (
	"cmp"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// loader is one Load in progress.
type loader struct {
	options Options
	cluster *Cluster
	library *library
	values  *inputValues
	// partial are the layers of which some stage could not be read. A missing name is
	// not reported there, as that stage may have it.
	partial map[string]bool
	diags   hcl.Diagnostics
}

// Load reads a cluster, and reports every problem at once. The Cluster is never nil,
// for its Files; it is fit for a run only if no diagnostic is an error.
func Load(o Options) (*Cluster, hcl.Diagnostics) {
	files := make(map[string]*hcl.File)
	l := &loader{
		options: o,
		cluster: &Cluster{Files: files, Templates: Templates(o.Repository, o.Templates)},
		library: newLibrary(o, files),
		partial: make(map[string]bool),
	}
	name, platform, err := resolve(o.Repository, o.Cluster)
	if err != nil {
		return l.cluster, hcl.Diagnostics{problem(hcl.Range{}, err.Error(), "")}
	}
	l.cluster.Name, l.cluster.Platform = name, platform
	l.cluster.Dir = filepath.Join(o.Repository, "clusters", name, platform)
	reader := &fileReader{load: l}
	reader.readCastle()
	l.addStages(reader.readCluster(), reader.defaults.timeout)
	reader.readGitOps()
	l.addOutputs()
	l.checkTypes()
	l.values = &inputValues{load: l, missing: make(map[string][]*Stage)}
	l.values.read(reader.defaults.inputs)
	blocks := &blockReader{load: l}
	for _, s := range l.cluster.Stages {
		l.values.bind(s)
		blocks.add(s)
	}
	blocks.delegateGates()
	l.values.reportMissing()
	edges := &connector{load: l}
	for _, s := range l.cluster.Disabled {
		edges.connectInputs(s)
	}
	for _, s := range l.cluster.Stages {
		edges.connect(s)
	}
	edges.checkCycles()
	for _, s := range l.cluster.Stages {
		l.checkValues(s)
	}
	return l.cluster, inOrder(distinct(l.diags))
}

func (l *loader) report(diags ...*hcl.Diagnostic) { l.diags = append(l.diags, diags...) }

func (l *loader) problem(at hcl.Range, summary, detail string, args ...any) {
	l.report(problem(at, summary, detail, args...))
}

// file is the name of a file of the cluster in diagnostics.
func (l *loader) file(name string) string {
	return path.Join("clusters", l.cluster.Name, l.cluster.Platform, name)
}

// addStages makes a stage of every entry whose source can be found.
func (l *loader) addStages(entries []*entry, timeout *hcl.Attribute) {
	for _, e := range entries {
		if e.Source == "" || !l.checkSource(e) {
			layer, _, _ := strings.Cut(e.Source, "/")
			l.markPartial(layer)
			continue
		}
		d := l.library.definition(e.Source)
		if d.diags.HasErrors() {
			l.markPartial(d.layer)
		}
		s := &Stage{
			Name: e.Name, Layer: d.layer, Source: e.Source, Summary: d.stage.Summary,
			Module: d.module, Origin: d.origin,
			EndsCluster: d.stage.EndsCluster, Persistent: d.stage.Persistent, Volatile: d.stage.Volatile,
			Providers: d.providers, ResourceProviders: d.resourceProviders, InCluster: d.inCluster,
			Variables: d.variables, Outputs: d.outputs,
			cluster: l.cluster, definition: d, entry: e, bindings: make(map[string]*binding),
		}
		if e.disabled {
			l.cluster.Disabled = append(l.cluster.Disabled, s)
			continue
		}
		l.report(d.diags...)
		s.Timeout = l.timeout(e.settings.timeout, d.settings.timeout, timeout)
		l.cluster.Stages = append(l.cluster.Stages, s)
	}
	byLayer := func(a, b *Stage) int { return cmp.Compare(layerIndex(a.Layer), layerIndex(b.Layer)) }
	slices.SortStableFunc(l.cluster.Stages, byLayer)
	slices.SortStableFunc(l.cluster.Disabled, byLayer)
}

func (l *loader) checkSource(e *entry) bool {
	sources := l.library.sources()
	if slices.Contains(sources, e.Source) {
		return true
	}
	layer, _, ok := strings.Cut(e.Source, "/")
	hint := orStop(DidYouMean(e.Source, sources))
	switch {
	case !ok:
		l.problem(e.SourceAt, "stage "+e.Name+": unsuitable source",
			"%q is not of the form <layer>/<stage>%s", e.Source, hint)
	case layerIndex(layer) < 0:
		l.problem(e.SourceAt, "stage "+e.Name+": unknown layer "+layer,
			"The layers are %s%s", strings.Join(Layers(), ", "), orStop(DidYouMean(layer, Layers())))
	default:
		l.problem(e.SourceAt, "stage "+e.Name+": unknown source",
			"There is no stage %q, neither in the repository's stages/ nor in castle%s", e.Source, hint)
	}
	return false
}

func (l *loader) markPartial(layer string) {
	if layerIndex(layer) >= 0 {
		l.partial[layer] = true
		return
	}
	for _, layer := range Layers() {
		l.partial[layer] = true
	}
}

func layerIndex(name string) int { return slices.Index(Layers(), name) }

// addOutputs notes which stage has which output of a layer.
func (l *loader) addOutputs() {
	l.cluster.owners = make(map[string]map[string]*Stage)
	for _, layer := range Layers() {
		l.cluster.owners[layer] = make(map[string]*Stage)
	}
	for _, s := range l.cluster.Stages {
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			owners := l.cluster.owners[s.Layer]
			if first := owners[name]; first != nil {
				l.problem(s.Outputs[name].declared, "layer "+s.Layer+": two stages have output "+name,
					"Stage %s has it here and stage %s at %s; %s.%s could mean either.",
					s.Name, first.Name, place(first.Outputs[name].declared), s.Layer, name)
				continue
			}
			owners[name] = s
		}
	}
}

// checkTypes reports variables of one name and two types: one value cannot suit both.
func (l *loader) checkTypes() {
	first := make(map[string]Variable)
	for _, s := range l.cluster.Stages {
		for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
			v := s.Variables[name]
			if v.constraint.ty == cty.DynamicPseudoType {
				continue
			}
			other, ok := first[name]
			if !ok {
				first[name] = v
			} else if !v.constraint.ty.Equals(other.constraint.ty) {
				l.problem(v.declared, "variable "+name+": two types",
					"It is %s here and %s at %s; variables of one name share their value. Give one of "+
						"them another name.",
					v.constraint, other.constraint, place(other.declared))
			}
		}
	}
}

// checkValues evaluates all expressions of a stage, as far as they are known before a run.
func (l *loader) checkValues(s *Stage) {
	sc := s.unknownScope()
	_, diags := s.Inputs(sc)
	l.report(diags...)
	for _, b := range s.blocks() {
		_, diags := b.values(s, sc)
		l.report(diags...)
	}
	count := gate.Attribute{Type: cty.Number, Valid: gate.ValidCount}
	for _, g := range s.Gates {
		_, diags := g.Values(g.Of.unknownScope())
		l.report(diags...)
		g.Policy.Timeout = l.policy(g.Of, g.block, "timeout", duration()).Duration("timeout")
		g.Policy.Stable = l.policy(g.Of, g.block, "stable", count).Int("stable")
	}
	s.extendTimeouts()
	for _, a := range s.Adopts {
		if e := a.Exists; e != nil {
			e.Policy.Timeout = l.policy(s, e.block, "timeout", duration()).Duration("timeout")
		}
	}
}

func duration() gate.Attribute { return gate.Attribute{Type: cty.String, Valid: gate.ValidDuration} }

// policy evaluates an argument of every gate that must be known when a run begins.
func (l *loader) policy(s *Stage, b *block, name string, takes gate.Attribute) gate.Values {
	expr, ok := b.args[name]
	if !ok {
		return nil
	}
	v, diags := b.argument(s, name, expr, takes, s.unknownScope())
	l.report(diags...)
	if !diags.HasErrors() && !v.IsKnown() && len(references(expr)) > 0 {
		l.problem(expr.Range(), b.of(s)+": "+name+" is not known before a run", "It can name no output.")
	}
	return gate.Values{name: v}
}

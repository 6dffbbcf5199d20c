package config

import (
	"cmp"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// loader is one Load under way.
type loader struct {
	Options
	cluster  *Cluster
	library  *library
	defaults stageBlock // of castle.hcl; only timeout and inputs
	gitops   *clone     // of cluster.hcl, else of castle.hcl
	given    given
	missing  map[string][]*Stage // variable without a value: who requires it
	// partial are the layers of which some stage could not be read. Names that
	// are missing there are not reported: the stage that has them may be that one.
	partial map[string]bool
	diags   hcl.Diagnostics
}

// Load reads a cluster. It reports every problem that it finds at once. The
// Cluster is never nil, for its Files; it is fit for a run only if no
// diagnostic is an error.
func Load(o Options) (*Cluster, hcl.Diagnostics) {
	files := make(map[string]*hcl.File)
	l := &loader{
		Options: o,
		cluster: &Cluster{Files: files, Templates: Templates(o.Repository, o.Templates)},
		library: &library{repository: o.Repository, embedded: o.Library, files: files, known: map[string]*definition{}},
		missing: make(map[string][]*Stage),
		partial: make(map[string]bool),
	}
	name, platform, err := resolve(o.Repository, o.Cluster)
	if err != nil {
		return l.cluster, hcl.Diagnostics{problem(hcl.Range{}, err.Error(), "")}
	}
	l.cluster.Name, l.cluster.Platform = name, platform
	l.cluster.Dir = filepath.Join(o.Repository, "clusters", name, platform)
	l.readCastleFile()
	l.addStages(l.readClusterFile())
	l.readGitOps()
	l.ownOutputs()
	l.checkTypes()
	l.readValues()
	for _, s := range l.cluster.Stages {
		l.bind(s)
		l.addBlocks(s)
	}
	l.askGates()
	l.reportMissing()
	for _, s := range l.cluster.Disabled {
		l.connectInputs(s)
	}
	for _, s := range l.cluster.Stages {
		l.connect(s)
	}
	l.checkCycles()
	for _, s := range l.cluster.Stages {
		l.checkValues(s)
	}
	return l.cluster, inOrder(distinct(l.diags))
}

func (l *loader) report(diags ...*hcl.Diagnostic) { l.diags = append(l.diags, diags...) }

// file names a file of the cluster as diagnostics do.
func (l *loader) file(name string) string {
	return path.Join("clusters", l.cluster.Name, l.cluster.Platform, name)
}

// addStages makes a stage of every entry whose source can be found.
func (l *loader) addStages(entries []*entry) {
	for _, e := range entries {
		if e.source == "" || !l.checkSource(e) {
			layer, _, _ := strings.Cut(e.source, "/")
			l.markPartial(layer)
			continue
		}
		d := l.library.definition(e.source)
		if d.diags.HasErrors() {
			l.markPartial(d.layer)
		}
		s := &Stage{
			Name: e.name, Layer: d.layer, Source: e.source, Summary: d.stage.summary, Module: d.module, Origin: d.origin,
			EndsCluster: d.stage.endsCluster, Persistent: d.stage.persistent, Volatile: d.stage.volatile,
			InCluster: d.inCluster, Providers: d.providers, Makers: d.makers, Variables: d.variables, Outputs: d.outputs,
			cluster: l.cluster, definition: d, entry: e, bindings: make(map[string]*binding),
		}
		if !e.enabled {
			l.cluster.Disabled = append(l.cluster.Disabled, s)
			continue
		}
		l.report(d.diags...)
		s.Timeout = l.timeout(e.stage.timeout, d.stage.timeout, l.defaults.timeout)
		l.cluster.Stages = append(l.cluster.Stages, s)
	}
	byLayer := func(a, b *Stage) int { return cmp.Compare(layerIndex(a.Layer), layerIndex(b.Layer)) }
	slices.SortStableFunc(l.cluster.Stages, byLayer)
	slices.SortStableFunc(l.cluster.Disabled, byLayer)
}

func (l *loader) checkSource(e *entry) bool {
	sources := l.library.sources()
	if slices.Contains(sources, e.source) {
		return true
	}
	layer, _, ok := strings.Cut(e.source, "/")
	switch {
	case !ok:
		l.report(problem(e.from, "stage "+e.name+": unsuitable source", "%q is not of the form <layer>/<stage>%s", e.source, orStop(DidYouMean(e.source, sources))))
	case layerIndex(layer) < 0:
		l.report(problem(e.from, "stage "+e.name+": unknown layer "+layer, "The layers are %s%s", strings.Join(Layers(), ", "), orStop(DidYouMean(layer, Layers()))))
	default:
		l.report(problem(e.from, "stage "+e.name+": unknown source", "There is no stage %q, neither in the repository's stages/ nor in castle%s", e.source, orStop(DidYouMean(e.source, sources))))
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

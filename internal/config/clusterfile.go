package config

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/labels"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// castleSyntax is castle.hcl. docs/reference_sentences_test.go describes the fields of this and the other
// types that decode files; the tag type is that of an attribute whose type Go does not tell.
type castleSyntax struct {
	Version   string    `hcl:"required_castle_version,optional"`
	VersionAt hcl.Range `hcl:"required_castle_version,attr_value_range"`
	Defaults  *struct {
		Timeout *hcl.Attribute `hcl:"timeout,optional" type:"duration"`
		Inputs  *hcl.Attribute `hcl:"inputs,optional" type:"map of values"`
	} `hcl:"defaults,block"`
	State     *stateSyntax `hcl:"state,block"`
	Terraform *struct {
		Binary *hcl.Attribute `hcl:"binary" type:"string"`
	} `hcl:"terraform,block"`
	Runs *struct {
		Keep *hcl.Attribute `hcl:"keep,optional" type:"number"`
	} `hcl:"runs,block"`
	GitOps []*gitopsBlock `hcl:"gitops,block"`
}

// clusterSyntax is cluster.hcl.
type clusterSyntax struct {
	Cluster []struct {
		Protect *hcl.Attribute `hcl:"protect,optional" type:"bool"`
		Labels  *hcl.Attribute `hcl:"labels,optional" type:"map of strings"`
		At      hcl.Range      `hcl:",def_range"`
	} `hcl:"cluster,block"`
	GitOps []*gitopsBlock `hcl:"gitops,block"`
	Stages []*entry       `hcl:"stage,block"`
}

// entry is one stage block of cluster.hcl.
type entry struct {
	Name       string         `hcl:"name,label"`
	NameAt     hcl.Range      `hcl:"name,label_range"`
	At         hcl.Range      `hcl:",def_range"`
	Source     string         `hcl:"source"`
	SourceAt   hcl.Range      `hcl:"source,attr_value_range"`
	Enabled    *hcl.Attribute `hcl:"enabled,optional" type:"bool"`
	Delegate   string         `hcl:"asked_by,optional"`
	DelegateAt hcl.Range      `hcl:"asked_by,attr_value_range"`
	Timeout    *hcl.Attribute `hcl:"timeout,optional" type:"duration"`
	Inputs     *hcl.Attribute `hcl:"inputs,optional" type:"map of expressions"`
	Needs      *hcl.Attribute `hcl:"needs,optional" type:"list of layers"`
	Gates      []blockSyntax  `hcl:"gate,block"`
	Survives   []blockSyntax  `hcl:"survives,block"`

	disabled bool // Enabled is false
	settings settings
	gates    []*block
	survives []*block
}

// gitopsBlock is the block gitops.
type gitopsBlock struct {
	Repository   string    `hcl:"repository"`
	RepositoryAt hcl.Range `hcl:"repository,attr_value_range"`
	At           hcl.Range `hcl:",def_range"`
}

const (
	defaultSnapshots = 20
	minSnapshots     = 2 // the state before the last change, and after it
	defaultRuns      = 50
)

// readCastle reads castle.hcl, where there is one, and returns its defaults for all stages. Where it has an
// error, no snapshot and no run is dropped.
func (l *loader) readCastle() (defaults settings) {
	f, diags := l.library.read(os.DirFS(l.options.Repository), "castle.hcl", "castle.hcl", true)
	var file castleSyntax
	l.unset = diags.HasErrors()
	if l.diags.decode(f, diags, l.cluster.context(), &file) {
		l.cluster.Snapshots, l.cluster.Runs = defaultSnapshots, defaultRuns
	}
	l.checkVersion(file.Version, file.VersionAt)
	if file.State != nil && file.State.Snapshots != nil {
		l.cluster.Snapshots = l.count(file.State.Snapshots, minSnapshots,
			"how many snapshots castle keeps of each stage's state")
	}
	l.readStateStore(file.State)
	if file.Runs != nil && file.Runs.Keep != nil {
		l.cluster.Runs = l.count(file.Runs.Keep, 1, "of how many runs castle keeps the journals and receipts")
	}
	l.cluster.Program = process.Getenv(l.options.Environ, "CASTLE_TERRAFORM")
	if t := file.Terraform; t != nil {
		program := gate.Values{"binary": l.diags.constant(t.Binary, cty.String, nil)}.String("binary")
		if program != "terraform" && program != "tofu" {
			l.diags.add(t.Binary.Expr.Range(), "castle.hcl: unsuitable binary",
				`%q is none. Write "terraform", which is the default, or "tofu" for OpenTofu.`, program)
		}
		l.cluster.Program = cmp.Or(l.cluster.Program, program)
	}
	l.addGitOps(file.GitOps)
	if file.Defaults == nil {
		return settings{}
	}
	return l.diags.readSettings(file.Defaults.Timeout, file.Defaults.Inputs, nil)
}

// ReadProgram returns the program that castle.hcl or the environment chooses, as Cluster has it.
func ReadProgram(o Options) string {
	l := &loader{options: o, cluster: new(Cluster), library: newLibrary(o, make(map[string]*hcl.File))}
	l.readCastle()
	return l.cluster.Program
}

// count returns the attribute's number, or 0 where it is not suitable.
func (l *loader) count(attr *hcl.Attribute, least int, meaning string) int {
	v := l.diags.constant(attr, cty.Number, nil)
	n := gate.Values{attr.Name: v}.Int(attr.Name)
	if v.IsKnown() && n < least {
		l.diags.add(attr.Expr.Range(), "castle.hcl: unsuitable "+attr.Name,
			"%s is no whole number of at least %d: %s.", v.AsBigFloat().Text('g', -1), least, meaning)
		return 0
	}
	return n
}

func (l *loader) checkVersion(required string, at hcl.Range) {
	if at.Empty() { // not given
		return
	}
	constraints, err := version.NewConstraint(required)
	if err != nil {
		l.diags.add(at, "castle.hcl: unsuitable required_castle_version",
			`%s. Write a constraint such as ">= 1.2".`, err)
		return
	}
	own, err := version.NewVersion(l.options.CastleVersion)
	switch {
	case err != nil || !released.MatchString(l.options.CastleVersion):
		d := syntax.Problem(at, "castle: its version is not known", "The repository requires castle %s, and "+
			"this is a development build (%s), which may be older. Use a release of castle.", required,
			l.options.CastleVersion)
		d.Severity = hcl.DiagWarning
		l.diags.report(d)
	case !constraints.Check(own):
		l.diags.add(at, "castle: version "+own.String()+" does not suit this repository",
			"It requires castle %s. Install such a version.", required)
	}
}

// released matches the version of a release: a build between two has a suffix such as -12-g689a43a.
var released = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)

// readCluster reads cluster.hcl. A file that cannot be read may protect the cluster, so it does.
func (l *loader) readCluster() []*entry {
	f, diags := l.library.read(os.DirFS(l.cluster.Dir), "cluster.hcl", l.file("cluster.hcl"), true)
	l.cluster.Protect = diags.HasErrors()
	var file clusterSyntax
	l.diags.decode(f, diags, l.cluster.context(), &file)
	l.markUnread(f, diags)
	seen := make(blockNames)
	for _, b := range file.Cluster {
		seen.isFirst(&l.diags, "cluster", "", b.At)
		protect := l.diags.constant(b.Protect, cty.Bool, l.cluster.context())
		l.cluster.Protect = l.cluster.Protect || b.Protect != nil && (!protect.IsKnown() || protect.True())
		of, wrong := labels.Read(b.Labels)
		l.cluster.Labels = of
		l.diags.report(wrong...)
	}
	l.addGitOps(file.GitOps)
	var entries []*entry
	for _, e := range file.Stages {
		if seen.isFirst(&l.diags, "stage "+e.Name, "", e.At) {
			l.readEntry(e)
			entries = append(entries, e)
		}
	}
	return entries
}

// markUnread notes the stages of cluster.hcl that castle could not read, or not as stages.
func (l *loader) markUnread(f *hcl.File, diags hcl.Diagnostics) {
	unknown := func(b *hclsyntax.Block) bool {
		return b.Type != "cluster" && b.Type != "gitops" && (b.Type != "stage" || len(b.Labels) != 1)
	}
	if diags.HasErrors() || f != nil && slices.ContainsFunc(f.Body.(*hclsyntax.Body).Blocks, unknown) {
		l.markPartial("")
	}
}

func (l *loader) readEntry(e *entry) {
	switch {
	case layerIndex(e.Name) >= 0:
		l.diags.add(e.NameAt, "stage "+e.Name+": named like a layer",
			"A stage's name may not be a layer's name, so that --only %s can mean one thing only.", e.Name)
	case !naming.Suits(e.Name):
		l.diags.add(e.NameAt, "stage "+e.Name+": unsuitable name", "A name has %s.", naming.Rule)
	}
	enabled := l.diags.constant(e.Enabled, cty.Bool, l.cluster.context())
	e.disabled = enabled.IsKnown() && enabled.False()
	e.settings = l.diags.readSettings(e.Timeout, e.Inputs, e.Needs)
	e.gates = l.diags.readBlocks("gate", "stage "+e.Name+": ", e.Gates)
	e.survives = l.diags.readBlocks("survives", "stage "+e.Name+": ", e.Survives)
}

// addGitOps takes the block gitops of a file, over that of the file before.
func (l *loader) addGitOps(blocks []*gitopsBlock) {
	seen := make(blockNames)
	for _, b := range blocks {
		if seen.isFirst(&l.diags, "gitops", "", b.At) {
			l.gitops = b
		}
	}
}

// readGitOps reads the clone of Flux's repository; a relative path is relative to the file that names it. A
// clone need not exist everywhere castle runs, so a missing one is a warning.
func (l *loader) readGitOps() {
	if l.gitops == nil || l.gitops.Repository == "" {
		return
	}
	at, folder := l.gitops.RepositoryAt, filepath.FromSlash(l.gitops.Repository)
	if !filepath.IsAbs(folder) {
		file := filepath.Join(l.options.Repository, at.Filename)
		if real, err := filepath.EvalSymlinks(file); err == nil { // castle new reads links
			file = real
		}
		folder = filepath.Join(filepath.Dir(file), folder)
	}
	named := folder
	folder = cmp.Or(l.options.GitOps, folder)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		d := syntax.Problem(at, "gitops: no repository there",
			"%s is no folder, so castle does not compare what its stages and Flux own. Clone there the "+
				"repository that git_url names, or correct the path: it is relative to this file.", folder)
		d.Severity = hcl.DiagWarning
		l.diags.report(d)
		return
	}
	l.cluster.GitOps = &GitOps{Repository: folder, Named: named, At: at}
}

// timeout returns the duration of an attribute, or 0 where it is absent or unsuitable.
func (l *loader) timeout(attr *hcl.Attribute) time.Duration {
	v := l.diags.constant(attr, cty.String, l.cluster.context())
	if v.IsKnown() {
		if err := gate.ValidDuration(v); err != nil {
			l.diags.add(attr.Expr.Range(), "timeout: unsuitable value", "%s.", err)
		}
	}
	return gate.Values{"timeout": v}.Duration("timeout")
}

package config

import (
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// castleSyntax is castle.hcl.
type castleSyntax struct {
	Version   *string   `hcl:"required_castle_version,optional"`
	VersionAt hcl.Range `hcl:"required_castle_version,attr_value_range"`
	Defaults  *struct {
		Timeout *hcl.Attribute `hcl:"timeout,optional"`
		Inputs  *hcl.Attribute `hcl:"inputs,optional"`
	} `hcl:"defaults,block"`
	State *struct {
		Snapshots *hcl.Attribute `hcl:"snapshots,optional"`
	} `hcl:"state,block"`
	GitOps []*gitopsBlock `hcl:"gitops,block"`
}

// clusterSyntax is cluster.hcl.
type clusterSyntax struct {
	Cluster []struct {
		Protect *hcl.Attribute `hcl:"protect,optional"`
		At      hcl.Range      `hcl:",def_range"`
	} `hcl:"cluster,block"`
	GitOps []*gitopsBlock `hcl:"gitops,block"`
	Stages []*entry       `hcl:"stage,block"`
}

// entry is one stage block of cluster.hcl.
type entry struct {
	Name     string         `hcl:"name,label"`
	NameAt   hcl.Range      `hcl:"name,label_range"`
	At       hcl.Range      `hcl:",def_range"`
	Source   string         `hcl:"source"`
	SourceAt hcl.Range      `hcl:"source,attr_value_range"`
	Enabled  *hcl.Attribute `hcl:"enabled,optional"`
	// Delegate is the stage that checks the gates of this one, which is disabled.
	Delegate   string         `hcl:"asked_by,optional"`
	DelegateAt hcl.Range      `hcl:"asked_by,attr_value_range"`
	Timeout    *hcl.Attribute `hcl:"timeout,optional"`
	Inputs     *hcl.Attribute `hcl:"inputs,optional"`
	Needs      *hcl.Attribute `hcl:"needs,optional"`
	Gates      []blockSyntax  `hcl:"gate,block"`

	disabled bool // Enabled is false
	settings settings
	gates    []*block
}

// gitopsBlock is the block gitops, and the file that it is in.
type gitopsBlock struct {
	Repository   string    `hcl:"repository"`
	RepositoryAt hcl.Range `hcl:"repository,attr_value_range"`
	At           hcl.Range `hcl:",def_range"`

	file string
}

// GitOps is a clone of the repository that Flux reads. castle reads it as it is: it
// neither pulls nor writes.
type GitOps struct {
	Repository string    // the folder to read; absolute
	Named      string    // the folder that the file names; another one for castle new only
	At         hcl.Range // of the name
}

// fileReader reads castle.hcl and cluster.hcl.
type fileReader struct {
	load     *loader
	defaults settings     // of castle.hcl; timeout and inputs
	gitops   *gitopsBlock // of cluster.hcl, else of castle.hcl
}

const (
	defaultSnapshots = 20
	minSnapshots     = 2 // the state before the last change, and after it
)

// readCastle reads castle.hcl, where there is one. Where it has an error, no snapshot
// is dropped.
func (r *fileReader) readCastle() {
	l := r.load
	f, diags := l.library.read(os.DirFS(l.options.Repository), "castle.hcl", "castle.hcl", true)
	var file castleSyntax
	diags = decode(f, diags, l.cluster.context(), &file)
	l.report(diags...)
	if !diags.HasErrors() {
		l.cluster.Snapshots = defaultSnapshots
	}
	if file.Version != nil {
		r.checkVersion(*file.Version, file.VersionAt)
	}
	if file.Defaults != nil {
		r.defaults, diags = readSettings(file.Defaults.Timeout, file.Defaults.Inputs, nil)
		l.report(diags...)
	}
	if file.State != nil && file.State.Snapshots != nil {
		l.cluster.Snapshots = l.snapshots(file.State.Snapshots)
	}
	r.addGitOps(file.GitOps, filepath.Join(l.options.Repository, "castle.hcl"))
}

// snapshots returns the attribute's number, or 0 where it is not suitable.
func (l *loader) snapshots(attr *hcl.Attribute) int {
	v, diags := constant(attr, cty.Number, nil)
	l.report(diags...)
	if !v.IsKnown() {
		return 0
	}
	n, _ := v.AsBigFloat().Float64()
	if n != math.Trunc(n) || n < minSnapshots || n > math.MaxInt32 {
		l.problem(attr.Expr.Range(), "castle.hcl: unsuitable snapshots",
			"%v is no whole number of at least %d: how many snapshots castle keeps of each stage's state.",
			n, minSnapshots)
		return 0
	}
	return int(n)
}

func (r *fileReader) checkVersion(required string, at hcl.Range) {
	constraints, err := version.NewConstraint(required)
	if err != nil {
		r.load.problem(at, "castle.hcl: unsuitable required_castle_version",
			`%s. Write a constraint such as ">= 1.2".`, err)
		return
	}
	own, err := version.NewVersion(r.load.options.CastleVersion)
	if err == nil && !constraints.Check(own) { // a development build has no version
		r.load.problem(at, "castle: version "+own.String()+" does not suit this repository",
			"It requires castle %s.", required)
	}
}

// readCluster reads cluster.hcl. A file that cannot be read may protect the cluster,
// so it does.
func (r *fileReader) readCluster() []*entry {
	l := r.load
	f, diags := l.library.read(os.DirFS(l.cluster.Dir), "cluster.hcl", l.file("cluster.hcl"), true)
	l.cluster.Protect = diags.HasErrors()
	var file clusterSyntax
	l.report(decode(f, diags, l.cluster.context(), &file)...)
	seen := make(blockNames)
	for _, b := range file.Cluster {
		l.report(seen.add("cluster", "", b.At)...)
		protect, diags := constant(b.Protect, cty.Bool, l.cluster.context())
		l.report(diags...)
		l.cluster.Protect = l.cluster.Protect || b.Protect != nil && (!protect.IsKnown() || protect.True())
	}
	r.addGitOps(file.GitOps, filepath.Join(l.cluster.Dir, "cluster.hcl"))
	var entries []*entry
	for _, e := range file.Stages {
		if diags := seen.add("stage "+e.Name, "", e.At); diags != nil {
			l.report(diags...)
			continue
		}
		r.readEntry(e)
		entries = append(entries, e)
	}
	return entries
}

func (r *fileReader) readEntry(e *entry) {
	switch {
	case layerIndex(e.Name) >= 0:
		r.load.problem(e.NameAt, "stage "+e.Name+": named like a layer",
			"A stage's name may not be a layer's name, so that --only %s can mean one thing only.", e.Name)
	case !hclsyntax.ValidIdentifier(e.Name):
		r.load.problem(e.NameAt, "stage "+e.Name+": unsuitable name",
			"A name has letters, digits, - and _ and begins with a letter.")
	}
	enabled, diags := constant(e.Enabled, cty.Bool, r.load.cluster.context())
	r.load.report(diags...)
	e.disabled = enabled.IsKnown() && enabled.False()
	e.settings, diags = readSettings(e.Timeout, e.Inputs, e.Needs)
	r.load.report(diags...)
	e.gates, diags = readBlocks("gate", "stage "+e.Name+": ", e.Gates)
	r.load.report(diags...)
}

func (r *fileReader) addGitOps(blocks []*gitopsBlock, file string) {
	seen := make(blockNames)
	for _, b := range blocks {
		if diags := seen.add("gitops", "", b.At); diags != nil {
			r.load.report(diags...)
			continue
		}
		r.gitops, b.file = b, file
	}
}

// readGitOps reads the clone of Flux's repository; a relative path is relative to the
// file that names it. A clone need not exist everywhere castle runs, so a missing one
// is a warning.
func (r *fileReader) readGitOps() {
	if r.gitops == nil || r.gitops.Repository == "" {
		return
	}
	folder := filepath.FromSlash(r.gitops.Repository)
	if !filepath.IsAbs(folder) {
		file := r.gitops.file // castle new reads a repository through links
		if real, err := filepath.EvalSymlinks(file); err == nil {
			file = real
		}
		folder = filepath.Join(filepath.Dir(file), folder)
	}
	named := folder
	if r.load.options.GitOps != "" {
		folder = r.load.options.GitOps
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		d := problem(r.gitops.RepositoryAt, "gitops: no repository there",
			"%s is no folder, so castle does not compare what its stages and Flux own. Clone there the "+
				"repository that git_url names, or correct the path: it is relative to this file.", folder)
		d.Severity = hcl.DiagWarning
		r.load.report(d)
		return
	}
	r.load.cluster.GitOps = &GitOps{Repository: folder, Named: named, At: r.gitops.RepositoryAt}
}

// timeout returns the first of the timeouts that is set, or 0.
func (l *loader) timeout(attributes ...*hcl.Attribute) time.Duration {
	for _, attr := range attributes {
		if attr == nil {
			continue
		}
		v, diags := constant(attr, cty.String, l.cluster.context())
		l.report(diags...)
		if !v.IsKnown() {
			return 0
		}
		if err := gate.ValidDuration(v); err != nil {
			l.problem(attr.Expr.Range(), "timeout: unsuitable value", "%s.", err)
		}
		return gate.Values{"timeout": v}.Duration("timeout")
	}
	return 0
}

// Package fleet reads which clusters of a repository are changed together, and in which order: fleet.hcl cuts
// them into waves by their labels. The file is optional; without it one wave has all clusters.
//
//	wave "staging" {
//	  select = "env=staging"
//	  soak   = "15m"
//	}
//
// A cluster belongs to the first wave whose selector matches. Of a cluster, the package reads the labels
// alone, from its cluster.hcl, so that a thousand of them are read in an instant. It contacts nothing.
package fleet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/labels"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// File is the name of the file, in the root of the repository.
const File = "fleet.hcl"

// Fleet is the clusters of a repository in the order of their waves.
type Fleet struct {
	Waves []*Wave
	// Unassigned are the clusters that no wave of fleet.hcl matches. castle changes none of them.
	Unassigned []Cluster
	Files      map[string]*hcl.File // for quoting the lines of diagnostics
}

// Wave is the clusters that may be changed at the same time.
type Wave struct {
	Name        string
	Select      Selector
	Canary      int           // so many clusters come first, alone; 0: none
	MaxFailures int           // so many clusters may fail before the wave does
	Parallel    int           // so many at a time; 0: what the command says
	Approval    bool          // somebody has to approve the wave before it begins
	Pause       time.Duration // between the end of the wave before and the beginning of this one
	Soak        time.Duration // in which the gates must stay open after the canary, and after the wave
	Clusters    []Cluster
	At          hcl.Range // of the block; empty without a fleet.hcl
}

// Cluster is a cluster with its labels.
type Cluster struct {
	Name   string            // blue/proxmox
	Labels map[string]string // as labels.All returns them
}

// Names returns the names of clusters.
func Names(all []Cluster) []string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
	}
	return names
}

// fleetSyntax is fleet.hcl.
type fleetSyntax struct {
	Waves []*waveSyntax `hcl:"wave,block"`
}

// waveSyntax is one wave block.
type waveSyntax struct {
	Name        string         `hcl:"name,label"`
	NameAt      hcl.Range      `hcl:"name,label_range"`
	At          hcl.Range      `hcl:",def_range"`
	Select      *hcl.Attribute `hcl:"select,optional" type:"string"`
	Parallel    *hcl.Attribute `hcl:"parallel,optional" type:"number"`
	Canary      *hcl.Attribute `hcl:"canary,optional" type:"number"`
	MaxFailures *hcl.Attribute `hcl:"max_failures,optional" type:"number"`
	Approval    *hcl.Attribute `hcl:"approval,optional" type:"bool"`
	Pause       *hcl.Attribute `hcl:"pause,optional" type:"duration"`
	Soak        *hcl.Attribute `hcl:"soak,optional" type:"duration"`
}

// reader collects the problems of the files that it reads.
type reader struct {
	repository string
	files      map[string]*hcl.File
	diags      hcl.Diagnostics
}

// Load reads fleet.hcl, and the labels of all clusters. The order of the clusters in a wave is that of their
// names. A cluster whose labels cannot be read is a problem: nobody knows which selector matches it. A wave
// without clusters is a warning, and so are clusters without a wave.
func Load(repository string) (*Fleet, hcl.Diagnostics) {
	r := &reader{repository: repository, files: map[string]*hcl.File{}}
	f := &Fleet{Files: r.files}
	waves, given := r.waves()
	if f.Waves = waves; !given {
		f.Waves = []*Wave{{Name: "all"}}
	}
	names, err := folders.Clusters(repository)
	if err != nil {
		r.diags = append(r.diags, syntax.Problem(hcl.Range{}, "clusters: not readable", "%s.", err))
	}
	for _, name := range names {
		c := Cluster{Name: name, Labels: r.labels(name)}
		i := slices.IndexFunc(f.Waves, func(w *Wave) bool { return w.Select.Matches(c.Labels) })
		if i < 0 {
			f.Unassigned = append(f.Unassigned, c)
			continue
		}
		f.Waves[i].Clusters = append(f.Waves[i].Clusters, c)
	}
	if given && !r.diags.HasErrors() {
		r.warn(f)
	}
	return f, syntax.InOrder(r.diags)
}

// Select returns the fleet with only those clusters that s matches. Waves without any are left out.
func (f *Fleet) Select(s Selector) *Fleet {
	only := func(all []Cluster) []Cluster {
		return slices.DeleteFunc(slices.Clone(all), func(c Cluster) bool { return !s.Matches(c.Labels) })
	}
	selected := &Fleet{Files: f.Files, Unassigned: only(f.Unassigned)}
	for _, w := range f.Waves {
		part := *w
		if part.Clusters = only(w.Clusters); len(part.Clusters) > 0 {
			selected.Waves = append(selected.Waves, &part)
		}
	}
	return selected
}

// Clusters returns the clusters of all waves, in their order.
func (f *Fleet) Clusters() (all []Cluster) {
	return xslices.FlatMap(f.Waves, func(w *Wave) []Cluster { return w.Clusters })
}

// Each calls do for all values, at most parallel at a time, in their order. It begins none once ctx is done.
func Each[T any](ctx context.Context, parallel int, all []T, do func(i int, one T)) {
	var group sync.WaitGroup
	var next atomic.Int64
	for range min(parallel, len(all)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				do(i, all[i])
			}
		})
	}
	group.Wait()
}

// waves reads fleet.hcl; given is whether there is one.
func (r *reader) waves() (all []*Wave, given bool) {
	data, err := os.ReadFile(filepath.Join(r.repository, File))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false
	case err != nil:
		r.problem(syntax.WholeFile(File), File+": not readable", "%s.", err)
		return nil, true
	}
	f, diags := syntax.Parse(data, File)
	if r.files[File], r.diags = f, diags; diags.HasErrors() {
		return nil, true
	}
	var file fleetSyntax
	r.diags = append(r.diags, syntax.Plain(gohcl.DecodeBody(f.Body, nil, &file))...)
	if len(file.Waves) == 0 && len(r.diags) == 0 {
		r.problem(syntax.WholeFile(File), "fleet.hcl: no wave", "Write a block wave, or remove the file: "+
			"without it one wave has all clusters.")
	}
	for i, w := range file.Waves {
		if !naming.Suits(w.Name) {
			r.problem(w.NameAt, "wave: unsuitable name", "%q: write %s.", w.Name, naming.Rule)
		}
		first := slices.IndexFunc(file.Waves, func(o *waveSyntax) bool { return o.Name == w.Name })
		if first < i {
			r.problem(w.At, "wave "+w.Name+": second block", "The first one is in line %d.",
				file.Waves[first].At.Start.Line)
		}
		all = append(all, r.wave(w))
	}
	return all, true
}

func (r *reader) wave(w *waveSyntax) *Wave {
	wave := &Wave{Name: w.Name, At: w.At, Parallel: r.count(w.Parallel, 1), Canary: r.count(w.Canary, 1),
		MaxFailures: r.count(w.MaxFailures, 0), Pause: r.duration(w.Pause), Soak: r.duration(w.Soak)}
	r.read(w.Approval, &wave.Approval)
	text := ""
	if r.read(w.Select, &text) {
		var err error
		if wave.Select, err = ParseSelector(text); err != nil {
			r.problem(w.Select.Expr.Range(), "select: unsuitable value", "%s.", err)
		}
	}
	return wave
}

// labels reads the labels of a cluster.
func (r *reader) labels(cluster string) map[string]string {
	file, diags := outline.Read(r.repository, cluster)
	if len(diags) > 0 {
		r.files[path.Join("clusters", cluster, "cluster.hcl")] = file.File
	}
	r.diags = append(r.diags, diags...)
	return labels.All(file.Labels, cluster)
}

// warn warns of waves and clusters that do not meet: the one or the other may have a typo.
func (r *reader) warn(f *Fleet) {
	for _, w := range f.Waves {
		if len(w.Clusters) == 0 {
			r.problem(w.At, "wave "+w.Name+": no cluster", "No cluster that the waves before leave has the "+
				"labels of its selector %q. `castle list` shows the labels.", w.Select)
		}
	}
	if len(f.Unassigned) > 0 {
		r.problem(syntax.WholeFile(File), "fleet.hcl: clusters without a wave", "No wave matches %s: castle "+
			"changes none of them.", strings.Join(Names(f.Unassigned), ", "))
	}
	for _, d := range r.diags {
		d.Severity = hcl.DiagWarning
	}
}

// read decodes an attribute that is a constant; false where it is absent or unsuitable.
func (r *reader) read(attr *hcl.Attribute, into any) bool {
	if attr == nil {
		return false
	}
	diags := gohcl.DecodeExpression(attr.Expr, nil, into)
	r.diags = append(r.diags, syntax.Plain(diags)...)
	return !diags.HasErrors()
}

// count reads a whole number that is at least least; 0 where the attribute is absent.
func (r *reader) count(attr *hcl.Attribute, least int) (n int) {
	if r.read(attr, &n) && n < least {
		r.problem(attr.Expr.Range(), attr.Name+": unsuitable value",
			"Write a whole number that is at least %d.", least)
	}
	return n
}

// duration reads a duration such as "15m"; 0 where the attribute is absent.
func (r *reader) duration(attr *hcl.Attribute) (d time.Duration) {
	text := ""
	if !r.read(attr, &text) {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		r.problem(attr.Expr.Range(), attr.Name+": unsuitable value",
			`%q is no duration. Write one such as "90s", "15m" or "2h".`, text)
	}
	return d
}

func (r *reader) problem(at hcl.Range, summary, detail string, args ...any) {
	r.diags = append(r.diags, syntax.Problem(at, summary, detail, args...))
}

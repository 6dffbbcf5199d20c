// Package changed says which clusters a change of a Git repository touches: it compares the working tree with
// the commit where the change began, and each file that differs with the files that a cluster depends on. It
// contacts nothing, and needs no valid configuration.
package changed

import (
	"cmp"
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/labels"
	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// How a change touches a cluster.
const (
	Changed = "changed"
	New     = "new"
	Deleted = "deleted" // it is not in the working tree; castle destroy works from its record
)

// Report lists the clusters that a change touches, by name.
type Report struct {
	Since       string    `json:"since"`
	Base        string    `json:"base"`        // the commit that it compares with: the merge base
	Clusters    []Cluster `json:"clusters"`    // that are touched
	All         int       `json:"all"`         // so many clusters are there
	Uncommitted []string  `json:"uncommitted"` // files of the change that no commit has
}

// Cluster is a cluster that a change touches.
type Cluster struct {
	Name   string            `json:"cluster"` // blue/proxmox
	Change string            `json:"change"`
	Files  []string          `json:"files"`            // that it depends on and that differ, from Git's root
	Labels map[string]string `json:"labels,omitempty"` // with cluster and platform
}

// Touches reports whether the change touches a cluster that is there.
func (r *Report) Touches(name string) bool {
	return slices.ContainsFunc(r.Clusters, func(c Cluster) bool {
		return c.Name == name && c.Change != Deleted
	})
}

// Run compares the working tree with the merge base of ref and HEAD. A renamed file counts with both names.
func Run(ctx context.Context, o cluster.Options, ref string, chosen fleet.Selector) (*Report, error) {
	r, err := openRepository(ctx, o.Repository)
	if err != nil {
		return nil, err
	}
	report := &Report{Since: ref, Clusters: []Cluster{}}
	if report.Base, err = r.mergeBase(ctx, ref); err != nil {
		return nil, err
	}
	files, err := r.names(ctx, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", report.Base)
	uncommitted, err2 := r.names(ctx, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", "HEAD")
	untracked, err3 := r.names(ctx, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", ":/")
	before, err4 := r.names(ctx, "ls-tree", "-r", "--name-only", "--full-tree", "-z", report.Base)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return nil, err
	}
	files = slices.Concat(files, untracked)
	slices.Sort(files)
	report.Uncommitted = append(append([]string{}, uncommitted...), untracked...) // never null
	all, err := folders.Clusters(o.Repository)
	if err != nil {
		return nil, err
	}
	report.All = len(all)
	was, options := r.clusters(before), o.Config()
	options.Definitions = new(config.Definitions)
	for _, name := range all {
		file, _ := outline.Read(o.Repository, name) //nolint:errcheck // castle check reports its problems
		c := Cluster{Name: name, Change: Changed, Labels: labels.All(file.Labels, name)}
		if !chosen.Matches(c.Labels) {
			continue
		}
		options.Cluster = name
		configured, _ := config.Load(options) // likewise
		paths := r.flux(configured)
		for _, p := range file.Dependencies() {
			paths = append(paths, r.prefix+p)
		}
		c.Files = slices.DeleteFunc(slices.Clone(files), func(f string) bool { return !among(f, paths) })
		if !slices.Contains(was, name) {
			c.Change = New
		}
		if len(c.Files) > 0 {
			report.Clusters = append(report.Clusters, c)
		}
	}
	for _, name := range was {
		gone := Cluster{Name: name, Change: Deleted, Labels: labels.All(nil, name),
			Files: []string{r.prefix + path.Join("clusters", name, "cluster.hcl")}}
		if !slices.Contains(all, name) && chosen.Matches(gone.Labels) {
			report.Clusters = append(report.Clusters, gone)
		}
	}
	slices.SortFunc(report.Clusters, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return report, nil
}

// clusters returns the clusters whose files are among those of a commit.
func (r repository) clusters(files []string) (all []string) {
	for _, file := range files {
		name, inside := strings.CutPrefix(file, r.prefix+"clusters/")
		name, is := strings.CutSuffix(name, "/cluster.hcl")
		if inside && is && strings.Count(name, "/") == 1 {
			all = append(all, name)
		}
	}
	return all
}

// among reports whether a file is one of paths: files, and folders that end with a slash; "" is all.
func among(file string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return file == p || p == "" || strings.HasSuffix(p, "/") && strings.HasPrefix(file, p)
	})
}

// flux returns what Flux reads for the cluster, if it is in the Git repository: the folders of all files that
// lead from git_path to an object. Where castle cannot follow Flux, it is the whole repository of Flux.
func (r repository) flux(c *config.Cluster) []string {
	if c.GitOps == nil {
		return nil
	}
	real, err := filepath.EvalSymlinks(c.GitOps.Repository)
	if err != nil {
		return nil
	}
	folder, err := filepath.Rel(r.root, real)
	if err != nil || !filepath.IsLocal(folder) {
		return nil // another clone, with commits of its own
	}
	begin := ""
	for _, s := range c.Stages {
		begin = cmp.Or(syntax.Text(s.Written("git_path").Value), begin)
	}
	within := func(name string) string { return strings.TrimPrefix(path.Join("/", folder, name), "/") }
	all := []string{within(begin) + "/"}
	_, err = gitops.Read(gitops.Options{Folder: real, Path: begin, Seen: func(file string) {
		dir, base := path.Split(within(file))
		if strings.HasPrefix(base, ".") { // .gitignore stands above everything
			dir += base
		}
		all = append(all, dir)
	}})
	if err != nil || begin == "" {
		return []string{strings.TrimPrefix(within("")+"/", "/")}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

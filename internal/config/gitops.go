package config

import (
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// GitOps is where a clone of the repository lies that Flux reads. castle asks it
// nothing but what it says: nothing is pulled, and nothing is written.
type GitOps struct {
	Repository string    // the folder to read; absolute
	Named      string    // the folder that is named; another one only for castle new
	At         hcl.Range // where it is named
}

// clone is a block gitops and the file that it is in.
type clone struct {
	block *hcl.Block
	file  string
}

// readGitOps reads the block gitops; its repository is relative to the file that
// names it. A clone need not be everywhere where castle runs, so a missing one is
// only a warning.
func (l *loader) readGitOps() {
	if l.gitops == nil {
		return
	}
	inner, diags := l.gitops.block.Body.Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "repository", Required: true}}})
	l.report(diags...)
	attr := inner.Attributes["repository"]
	v, diags := constant(attr, cty.String, l.cluster.context())
	l.report(diags...)
	if !v.IsKnown() {
		return
	}
	folder := filepath.FromSlash(v.AsString())
	if !filepath.IsAbs(folder) {
		// castle new looks at a repository through links.
		file := l.gitops.file
		if real, err := filepath.EvalSymlinks(file); err == nil {
			file = real
		}
		folder = filepath.Join(filepath.Dir(file), folder)
	}
	named := folder
	if l.GitOps != "" {
		folder = l.GitOps
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		d := problem(attr.Expr.Range(), "gitops: no repository there",
			"%s is no folder, so who owns what is not compared with Flux. Clone there what git_url names, or correct the path: it is relative to this file.", folder)
		d.Severity = hcl.DiagWarning
		l.report(d)
		return
	}
	l.cluster.GitOps = &GitOps{Repository: folder, Named: named, At: attr.Expr.Range()}
}

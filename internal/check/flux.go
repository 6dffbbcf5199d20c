package check

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// flux is what Flux would read for the cluster, and what is wrong with it; nil
// where no clone of its repository is named, or Flux is not pointed at one.
func (c *cluster) flux() (*gitops.Repository, gitops.Problems) {
	path := tfeval.Text(c.variable("git_path").Value)
	if c.config.GitOps == nil || path == "" {
		return nil, nil
	}
	if c.repository == nil {
		namespace := ""
		for _, m := range c.stageObjects() {
			if m.Group == "kustomize.toolkit.fluxcd.io" { // the root
				namespace = m.Namespace
			}
		}
		var err error
		c.repository, err = gitops.Read(gitops.Options{Folder: c.config.GitOps.Repository, Path: path, Namespace: namespace, Variables: c.offered})
		if !errors.As(err, &c.problems) && err != nil {
			c.problems = gitops.Problems{{Message: err.Error()}}
		}
		if c.repository == nil {
			c.repository = &gitops.Repository{}
		}
	}
	return c.repository, c.problems
}

// offered is what the ConfigMaps that stages make offer Flux to substitute.
func (c *cluster) offered(kind, namespace, name string) (map[string]string, bool) {
	for _, m := range c.stageObjects() {
		if m.Group == "" && m.Kind == kind && m.Namespace == namespace && m.Name == name && m.Data != nil {
			return m.Data, true
		}
	}
	return nil, false
}

// inFlux is a place in Flux's repository as diagnostics name files: from the
// castle repository on.
func (c *cluster) inFlux(p gitops.Place) hcl.Range {
	if p.File == "" {
		return c.config.GitOps.At
	}
	file := filepath.Join(c.config.GitOps.Named, filepath.FromSlash(p.File))
	root, err := filepath.EvalSymlinks(filepath.Join(c.config.Dir, "..", "..", ".."))
	if relative, isn := filepath.Rel(root, file); err == nil && isn == nil {
		file = relative
	}
	// Bytes are not known; a line is enough to name and to sort.
	return hcl.Range{
		Filename: filepath.ToSlash(file),
		Start:    hcl.Pos{Line: p.Line, Column: 1, Byte: p.Line}, End: hcl.Pos{Line: p.Line, Column: 1, Byte: p.Line + min(p.Line, 1)},
	}
}

func gitopsUnreadable(c *cluster, report reporter) {
	_, problems := c.flux()
	for _, p := range problems {
		if p.File == "" {
			p.Message += fmt.Sprintf(". Flux begins where git_path says (%s); castle new --gitops writes such a folder", where(c.at("git_path")))
		}
		report(c.inFlux(p.Place), "Flux's repository: not all can be read", "%s.", p.Message)
	}
}

// variableUnset finds what Flux would put nothing in the place of.
func variableUnset(c *cluster, report reporter) {
	repository, _ := c.flux()
	if repository == nil {
		return
	}
	for _, k := range repository.Kustomizations {
		for _, u := range k.Unset {
			report(c.inFlux(u.Object.Place), fmt.Sprintf("%s: ${%s} is set nowhere", named(u.Object), u.Variable),
				"Kustomization %s has Flux substitute variables in it, and where one has no value nothing is left. Set it in cluster_vars (%s), give it a default with ${%s:=…}, or write $${%s} if it is none of Flux's.",
				k.Key, where(c.at("cluster_vars")), u.Variable, u.Variable)
		}
	}
}

// named is an object of Flux's as messages name it.
func named(o gitops.Object) string {
	if o.GetNamespace() == "" {
		return fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
	}
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

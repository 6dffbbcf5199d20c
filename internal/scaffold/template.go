package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"text/template"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/ephemeral-castle/castle/internal/config"
)

// nextFile holds the next steps; it is printed and not copied.
const nextFile = "next.txt"

// part is one file of a template.
type part struct {
	name string
	text *template.Template
}

// readTemplate reads the template of a cluster.
func readTemplate(all fs.FS, name string) ([]part, error) {
	if name == gitopsTemplate {
		return nil, fmt.Errorf("template %q is for the repository that Flux reads: use castle new --gitops; "+
			"templates of clusters: %s", name, strings.Join(templateNames(all), ", "))
	}
	return readParts(all, name)
}

// templateNames returns the names of the templates of clusters.
func templateNames(all fs.FS) (names []string) {
	entries, _ := fs.ReadDir(all, ".") //nolint:errcheck // no folder, no templates
	for _, e := range entries {
		if e.IsDir() && e.Name() != gitopsTemplate {
			names = append(names, e.Name())
		}
	}
	return names
}

// readParts reads a template's files.
func readParts(all fs.FS, name string) ([]part, error) {
	var parts []part
	err := fs.WalkDir(all, name, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(all, file)
		if err != nil {
			return err
		}
		text, err := template.New(path.Join("templates", file)).Option("missingkey=error").Parse(string(data))
		if err != nil {
			return err
		}
		parts = append(parts, part{strings.TrimPrefix(file, name+"/"), text})
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || err == nil && len(parts) == 0 {
		names := templateNames(all)
		return nil, fmt.Errorf("no template %q; choose one of %s%s", name, strings.Join(names, ", "),
			config.DidYouMean(name, names))
	}
	return parts, err
}

// quoted and mention match inside an action of a template: a text, and a key such as .vip or $.vip. A field
// of a key's value begins with a capital: .Address.
var (
	action  = regexp.MustCompile(`\{\{.*?\}\}`)
	quoted  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	mention = regexp.MustCompile(`[ ({$]\.([a-z][a-z0-9_]*)`)
)

// mentions returns the keys that the file uses, in order.
func (p part) mentions() (names []string) {
	for _, a := range action.FindAllString(p.text.Root.String(), -1) { // without comments
		for _, m := range mention.FindAllStringSubmatch(quoted.ReplaceAllString(a, ""), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// render writes the file with the answers, HCL as `terraform fmt` would.
func (p part) render(answers map[string]any) ([]byte, error) {
	var b bytes.Buffer
	if err := p.text.Execute(&b, answers); err != nil {
		return nil, err
	}
	if ext := path.Ext(p.name); ext != ".hcl" && ext != ".tfvars" && ext != ".tf" {
		return b.Bytes(), nil
	}
	if _, diags := hclsyntax.ParseConfig(b.Bytes(), p.text.Name(), hcl.InitialPos); diags.HasErrors() {
		return nil, fmt.Errorf("%w (with the answers filled in)", diags)
	}
	return hclwrite.Format(b.Bytes()), nil
}

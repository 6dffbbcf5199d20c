package tfeval

import (
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

var (
	apiVersionLine = regexp.MustCompile(`(?m)^apiVersion: *(.+?) *$`)
	kindLine       = regexp.MustCompile(`(?m)^kind: *(.+?) *$`)
	nameLine       = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*?  name: *(.+?) *$`)
	namespaceLine  = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*?  namespace: *(.+?) *$`)

	insertion = regexp.MustCompile(`\{\{-? *\.(Release|Values)\.(\w+) *(?:\| *quote *)?-?\}\}`)
)

// chartObjects are the objects of a chart in the stage's own folder. Its templates
// are not rendered: the head of each document says what it is.
func (m *Module) chartObjects(b Block, release Object) []Object {
	values := m.chartValues(b)
	templates, err := fs.Glob(m.stage.Module, path.Join(release.Chart, "templates", "*.yaml"))
	if err != nil {
		return nil
	}
	var all []Object
	for _, file := range templates {
		data, err := fs.ReadFile(m.stage.Module, file)
		if err != nil {
			continue // Terraform reports it
		}
		for _, document := range strings.Split(string(data), "\n---") {
			o, known := Object{Stage: release.Stage, At: release.At}, true
			head := func(pattern *regexp.Regexp) string {
				found := pattern.FindStringSubmatch(document)
				if found == nil {
					return ""
				}
				value, is := filled(strings.Trim(found[1], `"`), release, values)
				known = known && is
				return value
			}
			o.Group, o.Kind = groupOf(head(apiVersionLine)), head(kindLine)
			o.Name, o.Namespace = head(nameLine), head(namespaceLine)
			if known && o.Kind != "" && o.Name != "" {
				all = append(all, o)
			}
		}
	}
	return all
}

// filled replaces the simplest insertions of a template; false if there are others.
func filled(text string, release Object, values map[string]string) (string, bool) {
	known := true
	text = insertion.ReplaceAllStringFunc(text, func(s string) string {
		found := insertion.FindStringSubmatch(s)
		all := values
		if found[1] == "Release" {
			all = map[string]string{"Name": release.Name, "Namespace": release.Namespace}
		}
		known = known && all[found[2]] != ""
		return all[found[2]]
	})
	return text, known && !strings.Contains(text, "{{")
}

// chartValues are the strings in values = [yamlencode({ … })] of a release.
func (m *Module) chartValues(b Block) map[string]string {
	all := map[string]string{}
	attr := b.block.Body.Attributes["values"]
	if attr == nil {
		return all
	}
	lists, _ := hcl.ExprList(attr.Expr) // no other form can be read here
	for _, e := range lists {
		call, is := e.(*hclsyntax.FunctionCallExpr)
		if !is || call.Name != "yamlencode" || len(call.Args) != 1 {
			continue
		}
		pairs, _ := hcl.ExprMap(call.Args[0])
		for _, kv := range pairs {
			key, diags := kv.Key.Value(nil)
			v, err := m.Evaluate(kv.Value, b.each)
			if !diags.HasErrors() && err == nil && Text(v) != "" {
				all[Text(key)] = Text(v)
			}
		}
	}
	return all
}

package check

import (
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// chart is what a chart in the stage's own folder makes. Its templates are not
// rendered: what stands at the head of each object says who it is.
func (w *workshop) chart(b *hclsyntax.Block, of made, each map[string]cty.Value) []made {
	values := w.chartValues(b, each)
	templates, err := fs.Glob(w.stage.Module, path.Join(of.chart, "templates", "*.yaml"))
	if err != nil {
		return nil
	}
	var all []made
	for _, file := range templates {
		data, err := fs.ReadFile(w.stage.Module, file)
		if err != nil {
			continue // Terraform will say so
		}
		for _, document := range strings.Split(string(data), "\n---") {
			one, known := made{stage: of.stage, at: of.at}, true
			head := func(pattern *regexp.Regexp) string {
				found := pattern.FindStringSubmatch(document)
				if found == nil {
					return ""
				}
				value, is := filled(strings.Trim(found[1], `"`), of, values)
				known = known && is
				return value
			}
			version := head(apiVersionLine)
			one.group, _, _ = strings.Cut(version, "/")
			if !strings.Contains(version, "/") {
				one.group = ""
			}
			one.kind, one.name, one.namespace = head(kindLine), head(nameLine), head(namespaceLine)
			if known && one.kind != "" && one.name != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

var (
	apiVersionLine = regexp.MustCompile(`(?m)^apiVersion: *(.+?) *$`)
	kindLine       = regexp.MustCompile(`(?m)^kind: *(.+?) *$`)
	nameLine       = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*?  name: *(.+?) *$`)
	namespaceLine  = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*?  namespace: *(.+?) *$`)

	insertion = regexp.MustCompile(`\{\{-? *\.(Release|Values)\.(\w+) *(?:\| *quote *)?-?\}\}`)
)

// filled replaces the simplest of what a template can insert; false if there is more.
func filled(text string, release made, values map[string]string) (string, bool) {
	known := true
	text = insertion.ReplaceAllStringFunc(text, func(s string) string {
		found := insertion.FindStringSubmatch(s)
		all := values
		if found[1] == "Release" {
			all = map[string]string{"Name": release.name, "Namespace": release.namespace}
		}
		known = known && all[found[2]] != ""
		return all[found[2]]
	})
	return text, known && !strings.Contains(text, "{{")
}

// chartValues are those values = [yamlencode({ … })] of a release that are texts and known.
func (w *workshop) chartValues(b *hclsyntax.Block, each map[string]cty.Value) map[string]string {
	all := map[string]string{}
	attr := b.Body.Attributes["values"]
	if attr == nil {
		return all
	}
	lists, _ := hcl.ExprList(attr.Expr) // another form has nothing that can be read here
	for _, e := range lists {
		call, is := e.(*hclsyntax.FunctionCallExpr)
		if !is || call.Name != "yamlencode" || len(call.Args) != 1 {
			continue
		}
		pairs, _ := hcl.ExprMap(call.Args[0])
		for _, kv := range pairs {
			key, diags := kv.Key.Value(nil)
			v, err := w.module.evaluate(kv.Value, w.beside(each))
			if !diags.HasErrors() && err == nil && text(v) != "" {
				all[text(key)] = text(v)
			}
		}
	}
	return all
}

// Package labels owns the labels of clusters, and the selectors that choose clusters by them. Keys, values
// and selectors have the syntax of Kubernetes. Labels are constants of cluster.hcl, so that Of reads them
// without the stages: a list of a thousand clusters needs no more.
package labels

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	kubernetes "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

// Selector chooses clusters. The zero value chooses all.
type Selector struct{ parsed kubernetes.Selector }

// Parse reads a selector such as env=staging,site!=rome. An empty text is an error, so that an empty variable
// of a shell does not choose every cluster.
func Parse(text string) (Selector, error) {
	if strings.TrimSpace(text) == "" {
		return Selector{}, errors.New("the selector is empty; write one such as env=staging,site!=rome")
	}
	parsed, err := kubernetes.Parse(text)
	if err != nil {
		return Selector{}, fmt.Errorf("selector %q: %w; write one such as env=staging,site!=rome", text, err)
	}
	return Selector{parsed}, nil
}

// Matches reports whether the selector chooses a cluster with these labels. As in Kubernetes, a cluster
// without the key matches env!=staging, and not env=staging.
func (s Selector) Matches(of map[string]string) bool {
	return s.parsed == nil || s.parsed.Matches(kubernetes.Set(of))
}

// Empty reports whether the selector chooses every cluster.
func (s Selector) Empty() bool { return s.parsed == nil || s.parsed.Empty() }

// String is the selector in its usual form.
func (s Selector) String() string {
	if s.parsed == nil {
		return ""
	}
	return s.parsed.String()
}

// Text writes labels by key: env=staging,site=rome.
func Text(of map[string]string) string { return kubernetes.Set(of).String() }

// Read returns the labels of the attribute labels of the block cluster, which may be nil.
func Read(attr *hcl.Attribute) (map[string]string, hcl.Diagnostics) {
	if attr == nil {
		return nil, nil
	}
	pairs, diags := hcl.ExprMap(attr.Expr)
	if diags.HasErrors() {
		return nil, hcl.Diagnostics{syntax.Problem(attr.Expr.Range(), "labels: unsuitable value",
			`Write labels = { env = "staging" }.`)}
	}
	all, wrong := make(map[string]string), hcl.Diagnostics(nil)
	for _, pair := range pairs {
		key, value := constant(pair.Key), constant(pair.Value)
		at := hcl.RangeBetween(pair.Key.Range(), pair.Value.Range())
		_, twice := all[syntax.Text(key)]
		if reason := unsuitable(key, value, twice); reason != "" {
			of := strings.TrimSpace("label " + syntax.Text(key))
			wrong = append(wrong, syntax.Problem(at, of+": unsuitable", "%s", reason))
			continue
		}
		all[syntax.Text(key)] = value.AsString()
	}
	return all, wrong
}

// constant evaluates an expression; one that needs a name or fails has no type.
func constant(expr hcl.Expression) cty.Value {
	v, diags := expr.Value(nil)
	if diags.HasErrors() || v.IsNull() {
		return cty.DynamicVal
	}
	return v
}

// unsuitable returns why a pair is no label, as a sentence; "" if it is one.
func unsuitable(key, value cty.Value, twice bool) string {
	if key.Type() != cty.String || value.Type() != cty.String {
		return "Key and value are texts, and constants: write env = \"staging\"."
	}
	if twice {
		return "The key is there twice. Remove one of them."
	}
	what, given, reasons := "key", key.AsString(), validation.IsQualifiedName(key.AsString())
	if len(reasons) == 0 {
		what, given, reasons = "value", value.AsString(), validation.IsValidLabelValue(value.AsString())
	}
	if len(reasons) == 0 {
		return ""
	}
	reason, _, _ := strings.Cut(reasons[0], " (e.g.") // a regular expression follows
	return fmt.Sprintf("The %s %q is not one of Kubernetes: %s.", what, given, reason)
}

// Of reads the labels of a cluster, "blue/proxmox", from its cluster.hcl alone.
func Of(repository, cluster string) (map[string]string, error) {
	name := path.Join("clusters", cluster, "cluster.hcl")
	src, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	f, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	for _, b := range f.Body.(*hclsyntax.Body).Blocks {
		if attr := b.Body.Attributes["labels"]; b.Type == "cluster" && attr != nil {
			all, diags := Read(attr.AsHCLAttribute())
			if diags.HasErrors() {
				return nil, diags
			}
			return all, nil
		}
	}
	return nil, nil
}

// Package labels reads the labels of clusters, by which the selectors of package fleet choose them. Keys and
// values have the syntax of Kubernetes. Labels are constants of cluster.hcl, which are known without the
// stages: a list of a thousand clusters needs no more.
package labels

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

// The labels that every cluster has: its own name and that of its platform.
const (
	Cluster  = "cluster"
	Platform = "platform"
)

// All returns the labels of a cluster, "blue/proxmox", with those that every cluster has.
func All(of map[string]string, cluster string) map[string]string {
	all := maps.Clone(of)
	if all == nil {
		all = make(map[string]string)
	}
	all[Cluster], all[Platform], _ = strings.Cut(cluster, "/")
	return all
}

// Text writes labels by key: env=staging,site=rome.
func Text(of map[string]string) string {
	pair := func(key string) string { return key + "=" + of[key] }
	return strings.Join(xslices.Map(slices.Sorted(maps.Keys(of)), pair), ",")
}

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

// constant evaluates an expression to a text; one that needs a name or fails has no type.
func constant(expr hcl.Expression) cty.Value {
	v, diags := expr.Value(nil)
	v, err := syntax.Convert(v, cty.String) // a number is written without quotes
	if diags.HasErrors() || err != nil || v.IsNull() || !v.IsKnown() {
		return cty.DynamicVal
	}
	return v
}

// unsuitable returns why a pair is no label, as a sentence; "" if it is one.
func unsuitable(key, value cty.Value, twice bool) string {
	switch {
	case key.Type() != cty.String || value.Type() != cty.String:
		return "Key and value are texts, and constants: write env = \"staging\"."
	case twice:
		return "The key is there twice. Remove one of them."
	case key.AsString() == Cluster || key.AsString() == Platform:
		return "Every cluster has this label: it is the name of its folder. Choose another key."
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

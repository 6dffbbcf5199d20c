package kubernetes

import (
	"strings"

	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// metadataBlock is the block that every object has.
func metadataBlock(namespaced bool) plugin.NestedBlock {
	kept := func(t cty.Type) plugin.Attribute { return plugin.Attribute{Type: t, Computed: true, Keep: true} }
	attributes := map[string]plugin.Attribute{
		"annotations":      {Type: cty.Map(cty.String), Optional: true},
		"labels":           {Type: cty.Map(cty.String), Optional: true},
		"name":             {Type: cty.String, Optional: true, Computed: true, Keep: true, Replace: true},
		"generate_name":    {Type: cty.String, Optional: true, Replace: true},
		"generation":       kept(cty.Number),
		"resource_version": kept(cty.String),
		"uid":              kept(cty.String),
	}
	if namespaced {
		attributes["namespace"] = plugin.Attribute{Type: cty.String, Optional: true,
			Default: cty.StringVal("default"), Replace: true}
	}
	return plugin.NestedBlock{Mode: plugin.List, Min: 1, Max: 1, Block: plugin.Block{Attributes: attributes}}
}

func metadataOf(v plugin.Values) plugin.Values {
	if blocks := v.Objects("metadata"); len(blocks) == 1 {
		return blocks[0]
	}
	return nil
}

// objectMeta is the planned metadata as the API wants it.
func objectMeta(v plugin.Values) metav1.ObjectMeta {
	m := metadataOf(v)
	return metav1.ObjectMeta{
		Name: m.String("name"), GenerateName: m.String("generate_name"), Namespace: m.String("namespace"),
		Labels: m.Map("labels"), Annotations: m.Map("annotations"),
	}
}

// metadataValue returns the metadata in the API, without the labels and annotations that Kubernetes
// sets itself: Terraform ignores those.
func metadataValue(o metav1.ObjectMeta, state plugin.Values, namespaced bool) cty.Value {
	known := metadataOf(state)
	v := plugin.Values{
		"annotations":      visible(o.Annotations, known, "annotations"),
		"labels":           visible(o.Labels, known, "labels"),
		"name":             cty.StringVal(o.Name),
		"generate_name":    plugin.Text(o.GenerateName),
		"generation":       cty.NumberIntVal(o.Generation),
		"resource_version": cty.StringVal(o.ResourceVersion),
		"uid":              cty.StringVal(string(o.UID)),
	}
	if namespaced {
		v["namespace"] = cty.StringVal(o.Namespace)
	}
	return cty.ListVal([]cty.Value{plugin.Object(v)})
}

func visible(all map[string]string, known plugin.Values, name string) cty.Value {
	configured := known.Map(name)
	shown := map[string]string{}
	for key, value := range all {
		if _, ok := configured[key]; ok || !internal(key) {
			shown[key] = value
		}
	}
	return sameEmptiness(shown, configured)
}

// sameEmptiness keeps an absent map absent and an empty one empty, so that
// neither looks like a change.
func sameEmptiness(m, before map[string]string) cty.Value {
	if len(m) == 0 && before == nil {
		return plugin.StringMap(nil)
	}
	return plugin.StringMap(m)
}

func internal(key string) bool {
	host, _, _ := strings.Cut(key, "/")
	switch host {
	case "app.kubernetes.io", "service.beta.kubernetes.io":
		return false
	}
	return strings.HasSuffix(host, "kubernetes.io") || strings.HasSuffix(host, "k8s.io")
}

// withoutNulls drops null elements, as the old SDK does.
func withoutNulls(p *plugin.Plan, name string) {
	x := p.Change.Planned[name]
	if x.IsNull() || !x.IsWhollyKnown() {
		return
	}
	p.Change.Planned[name] = plugin.StringMap(p.Change.Planned.Map(name))
}

// mapPatch is a merge patch that makes one map of strings another.
func mapPatch(before, after map[string]string) map[string]any {
	patch := map[string]any{}
	for key := range before {
		patch[key] = nil
	}
	for key, value := range after {
		patch[key] = value
	}
	return patch
}

func metadataPatch(c plugin.Change) map[string]any {
	before, after := metadataOf(c.Prior), metadataOf(c.Planned)
	return map[string]any{
		"labels":      mapPatch(before.Map("labels"), after.Map("labels")),
		"annotations": mapPatch(before.Map("annotations"), after.Map("annotations")),
	}
}

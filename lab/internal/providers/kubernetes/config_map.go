package kubernetes

import (
	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func (p *provider) configMap() plugin.Resource {
	k := kind[corev1.ConfigMap]{
		provider: p,
		in: func(core client.CoreV1Interface, namespace string) api[corev1.ConfigMap] {
			return core.ConfigMaps(namespace)
		},
		build: func(planned plugin.Values) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: objectMeta(planned), Data: planned.Map("data")}
		},
		values: configMapValues,
		patch: func(c plugin.Change) map[string]any {
			return map[string]any{"data": mapPatch(c.Prior.Map("data"), c.Planned.Map("data"))}
		},
		failed: "Failed to update Config Map",
	}
	return plugin.Resource{
		Legacy: true,
		Schema: plugin.Block{
			Attributes: map[string]plugin.Attribute{
				"id":   {Type: cty.String, Optional: true, Computed: true, Keep: true},
				"data": {Type: cty.Map(cty.String), Optional: true},
			},
			Blocks: map[string]plugin.NestedBlock{"metadata": metadataBlock(true)},
		},
		Plan:   planData,
		Create: k.create,
		Read:   k.read,
		Update: k.update,
		Delete: k.delete,
		Import: importByID,
	}
}

func configMapValues(m *corev1.ConfigMap, state plugin.Values) plugin.Values {
	return plugin.Values{
		"id": cty.StringVal(m.Namespace + "/" + m.Name), "metadata": metadataValue(m.ObjectMeta, state, true),
		"data": sameEmptiness(m.Data, state.Map("data")),
	}
}

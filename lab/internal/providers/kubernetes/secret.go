package kubernetes

import (
	"context"
	"encoding/base64"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func (p *provider) secret() plugin.Resource {
	k := kind[corev1.Secret]{
		provider: p,
		in: func(core client.CoreV1Interface, namespace string) api[corev1.Secret] {
			return core.Secrets(namespace)
		},
		build: func(planned plugin.Values) *corev1.Secret {
			return &corev1.Secret{
				ObjectMeta: objectMeta(planned), Type: corev1.SecretType(planned.String("type")),
				Data: asBytes(planned.Map("data")),
			}
		},
		values: secretValues,
		patch:  secretPatch,
		failed: "Failed to update secret",
	}
	return plugin.Resource{
		Legacy: true,
		Schema: plugin.Block{
			Attributes: map[string]plugin.Attribute{
				"id": {Type: cty.String, Optional: true, Computed: true, Keep: true},
				"data": {Type: cty.Map(cty.String), Optional: true, Computed: true, Sensitive: true,
					Keep: true},
				"type": {Type: cty.String, Optional: true,
					Default: cty.StringVal(string(corev1.SecretTypeOpaque)), Replace: true},
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

func planData(_ context.Context, p *plugin.Plan) error {
	withoutNulls(p, "data")
	return nil
}

func asBytes(m map[string]string) map[string][]byte {
	all := map[string][]byte{}
	for key, value := range m {
		all[key] = []byte(value)
	}
	return all
}

func secretValues(s *corev1.Secret, state plugin.Values) plugin.Values {
	data := map[string]string{}
	for key, value := range s.Data {
		data[key] = string(value)
	}
	return plugin.Values{
		"id": cty.StringVal(s.Namespace + "/" + s.Name), "type": cty.StringVal(string(s.Type)),
		"metadata": metadataValue(s.ObjectMeta, state, true), "data": sameEmptiness(data, state.Map("data")),
	}
}

func secretPatch(c plugin.Change) map[string]any {
	data := mapPatch(c.Prior.Map("data"), c.Planned.Map("data"))
	for key, value := range data {
		if text, ok := value.(string); ok {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	return map[string]any{"data": data}
}

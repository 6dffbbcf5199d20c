package kubernetes

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func (p *provider) secret() plugin.Resource {
	return plugin.Resource{
		Legacy: true,
		Schema: plugin.Block{
			Attributes: map[string]plugin.Attribute{
				"id":   {Type: cty.String, Optional: true, Computed: true, Keep: true},
				"data": {Type: cty.Map(cty.String), Optional: true, Computed: true, Sensitive: true, Keep: true},
				"type": {Type: cty.String, Optional: true, Default: cty.StringVal(string(corev1.SecretTypeOpaque)), Replace: true},
			},
			Blocks: map[string]plugin.NestedBlock{"metadata": metadataBlock(true)},
		},
		Plan:   planData,
		Create: p.createSecret,
		Read:   p.readSecret,
		Update: p.updateSecret,
		Delete: p.deleteSecret,
		Import: importByID,
	}
}

func planData(_ context.Context, p *plugin.Plan) error {
	withoutNulls(p, "data")
	return nil
}

func (p *provider) createSecret(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	meta := objectMeta(c.Planned)
	made, err := core.Secrets(meta.Namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: meta, Type: corev1.SecretType(c.Planned.String("type")), Data: asBytes(c.Planned.Map("data")),
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return secretValues(made, c.Planned), nil
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

func (p *provider) readSecret(ctx context.Context, state plugin.Values) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	namespace, name, err := split(state.String("id"))
	if err != nil {
		return nil, err
	}
	found, err := core.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return secretValues(found, state), nil
}

func (p *provider) updateSecret(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	namespace, name, err := split(c.Prior.String("id"))
	if err != nil {
		return nil, err
	}
	data := mapPatch(c.Prior.Map("data"), c.Planned.Map("data"))
	for key, value := range data {
		if text, ok := value.(string); ok {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadataPatch(c), "data": data})
	if err != nil {
		return nil, err
	}
	changed, err := core.Secrets(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, &plugin.Problem{Summary: "Failed to update secret: " + err.Error()}
	}
	return secretValues(changed, c.Planned), nil
}

func (p *provider) deleteSecret(ctx context.Context, state plugin.Values) error {
	core, err := p.connect()
	if err != nil {
		return err
	}
	namespace, name, err := split(state.String("id"))
	if err != nil {
		return err
	}
	if err := core.Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

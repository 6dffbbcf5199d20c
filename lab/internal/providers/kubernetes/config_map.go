package kubernetes

import (
	"context"
	"encoding/json"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func (p *provider) configMap() plugin.Resource {
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
		Create: p.createConfigMap,
		Read:   p.readConfigMap,
		Update: p.updateConfigMap,
		Delete: p.deleteConfigMap,
		Import: importByID,
	}
}

func (p *provider) createConfigMap(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	meta := objectMeta(c.Planned)
	made, err := core.ConfigMaps(meta.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: c.Planned.Map("data")}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return configMapValues(made, c.Planned), nil
}

func configMapValues(m *corev1.ConfigMap, state plugin.Values) plugin.Values {
	return plugin.Values{
		"id": cty.StringVal(m.Namespace + "/" + m.Name), "metadata": metadataValue(m.ObjectMeta, state, true),
		"data": sameEmptiness(m.Data, state.Map("data")),
	}
}

func (p *provider) readConfigMap(ctx context.Context, state plugin.Values) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	namespace, name, err := split(state.String("id"))
	if err != nil {
		return nil, err
	}
	found, err := core.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return configMapValues(found, state), nil
}

func (p *provider) updateConfigMap(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	namespace, name, err := split(c.Prior.String("id"))
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadataPatch(c), "data": mapPatch(c.Prior.Map("data"), c.Planned.Map("data")),
	})
	if err != nil {
		return nil, err
	}
	changed, err := core.ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, &plugin.Problem{Summary: "Failed to update Config Map: " + err.Error()}
	}
	return configMapValues(changed, c.Planned), nil
}

func (p *provider) deleteConfigMap(ctx context.Context, state plugin.Values) error {
	core, err := p.connect()
	if err != nil {
		return err
	}
	namespace, name, err := split(state.String("id"))
	if err != nil {
		return err
	}
	if err := core.ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

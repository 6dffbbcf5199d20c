package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

const (
	deleteTimeout = 5 * time.Minute
	firstPause    = 200 * time.Millisecond
	mostPause     = 3 * time.Second
)

func (p *provider) namespace() plugin.Resource {
	return plugin.Resource{
		Legacy: true,
		Schema: plugin.Block{
			Attributes: map[string]plugin.Attribute{"id": {Type: cty.String, Optional: true, Computed: true, Keep: true}},
			Blocks: map[string]plugin.NestedBlock{
				"metadata": metadataBlock(false),
				"timeouts": {Block: plugin.Block{Attributes: map[string]plugin.Attribute{"delete": {Type: cty.String, Optional: true}}}},
			},
		},
		Create: p.createNamespace,
		Read:   p.readNamespace,
		Update: p.updateNamespace,
		Delete: p.deleteNamespace,
		Import: importByID,
	}
}

func (p *provider) createNamespace(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	made, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: objectMeta(c.Planned)}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return namespaceValues(made, c.Planned), nil
}

func namespaceValues(n *corev1.Namespace, state plugin.Values) plugin.Values {
	return plugin.Values{"id": cty.StringVal(n.Name), "metadata": metadataValue(n.ObjectMeta, state, false)}
}

func (p *provider) readNamespace(ctx context.Context, state plugin.Values) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	found, err := core.Namespaces().Get(ctx, state.String("id"), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return namespaceValues(found, state), nil
}

func (p *provider) updateNamespace(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	core, err := p.connect()
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadataPatch(c)})
	if err != nil {
		return nil, err
	}
	changed, err := core.Namespaces().Patch(ctx, c.Prior.String("id"), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, err
	}
	return namespaceValues(changed, c.Planned), nil
}

// deleteNamespace waits until everything in the namespace and the namespace itself is gone.
func (p *provider) deleteNamespace(ctx context.Context, state plugin.Values) error {
	core, err := p.connect()
	if err != nil {
		return err
	}
	limit := deleteTimeout
	if given := state.Object("timeouts").String("delete"); given != "" {
		if limit, err = time.ParseDuration(given); err != nil {
			return err
		}
	}
	name := state.String("id")
	if err := core.Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	over := time.After(limit)
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		if _, err := core.Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			return fmt.Errorf("timeout while waiting for resource to be gone (last state: 'Terminating', timeout: %s)", limit)
		}
	}
}

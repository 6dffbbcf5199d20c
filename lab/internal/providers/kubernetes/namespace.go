package kubernetes

import (
	"context"
	"fmt"
	"time"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

const (
	deleteTimeout = 5 * time.Minute
	firstPause    = 200 * time.Millisecond
	mostPause     = 3 * time.Second
)

func (p *provider) namespace() plugin.Resource {
	k := kind[corev1.Namespace]{
		provider:    p,
		clusterWide: true,
		in: func(core client.CoreV1Interface, _ string) api[corev1.Namespace] {
			return core.Namespaces()
		},
		build: func(planned plugin.Values) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: objectMeta(planned)}
		},
		values: namespaceValues,
	}
	return plugin.Resource{
		Legacy: true,
		Schema: plugin.Block{
			Attributes: map[string]plugin.Attribute{
				"id": {Type: cty.String, Optional: true, Computed: true, Keep: true},
			},
			Blocks: map[string]plugin.NestedBlock{
				"metadata": metadataBlock(false),
				"timeouts": {
					Block: plugin.Block{
						Attributes: map[string]plugin.Attribute{"delete": {Type: cty.String, Optional: true}},
					},
				},
			},
		},
		Create: k.create,
		Read:   k.read,
		Update: k.update,
		Delete: p.deleteNamespace,
		Import: importByID,
	}
}

func namespaceValues(n *corev1.Namespace, state plugin.Values) plugin.Values {
	return plugin.Values{"id": cty.StringVal(n.Name), "metadata": metadataValue(n.ObjectMeta, state, false)}
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
			return fmt.Errorf("timeout while waiting for resource to be gone (last state: 'Terminating', "+
				"timeout: %s)", limit)
		}
	}
}

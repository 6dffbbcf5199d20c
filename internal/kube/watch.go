package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// selection is what a gate watches: a kind's objects in a namespace (all where
// it is empty), narrowed by label or by name.
type selection struct {
	in        schema.GroupVersionResource
	namespace string
	labels    string
	name      string
}

// changes makes a gate's Changed from what select says is to be watched. A
// watch that cannot start or ends is not begun again: the gate is polled then,
// as it is for everything that cannot be watched.
func (c *cluster) changes(what func(context.Context, *api) (selection, error)) func(context.Context) <-chan struct{} {
	return func(ctx context.Context) <-chan struct{} {
		changed := make(chan struct{}, 1)
		go func() {
			defer close(changed)
			a, err := c.open()
			if err != nil {
				return
			}
			s, err := what(ctx, a)
			if err != nil {
				return
			}
			events, err := a.watch(ctx, s)
			if err != nil {
				return
			}
			defer events.Stop()
			for event := range events.ResultChan() {
				if event.Type == watch.Error {
					return
				}
				select {
				case changed <- struct{}{}:
				default: // one is waiting already; a check sees everything at once
				}
			}
		}()
		return changed
	}
}

func (a *api) watch(ctx context.Context, s selection) (watch.Interface, error) {
	options := metav1.ListOptions{LabelSelector: s.labels}
	if s.name != "" {
		options.FieldSelector = "metadata.name=" + s.name
	}
	return a.dynamic.Resource(s.in).Namespace(s.namespace).Watch(ctx, options)
}

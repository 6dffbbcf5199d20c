package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Warn records a warning about an object, in its namespace, as a component's recorder does.
func (w *View) Warn(ctx context.Context, about corev1.ObjectReference, component, reason,
	message string) error {
	return w.record(ctx, corev1.EventTypeWarning, about, component, reason, message)
}

// Inform records an event of the type Normal about an object.
func (w *View) Inform(ctx context.Context, about corev1.ObjectReference, component, reason,
	message string) error {
	return w.record(ctx, corev1.EventTypeNormal, about, component, reason, message)
}

func (w *View) record(ctx context.Context, typ string, about corev1.ObjectReference, component, reason,
	message string) error {
	now := metav1.NewTime(w.Now())
	_, err := w.Typed.CoreV1().Events(about.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace,
			Name: about.Name + "." + rand.String(16)},
		InvolvedObject: about, Type: typ, Reason: reason, Message: message, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: component},
	}, metav1.CreateOptions{})
	return err
}

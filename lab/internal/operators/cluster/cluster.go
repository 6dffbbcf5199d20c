// Package cluster gives the lab's operators their cluster: clients for its API, a
// clock that runs at the lab's speed, the faults that delay a step, and helpers for
// the status and the conditions of custom resources.
package cluster

import (
	"context"
	"reflect"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// View is the cluster as the operators see it, and their clock.
type View struct {
	Typed   kubernetes.Interface
	Untyped dynamic.Interface
	speed   float64
	Now     func() time.Time
	Faults  Faults
	Turn    func(Turn)
	Asks    *Asks // castle's requests; nil: faults count from their beginning

	// Fresh is how old a list of workloads may be that operators share; 0 if each reads its own.
	Fresh time.Duration

	mu    sync.Mutex
	first map[string]time.Time

	reading     sync.Mutex // guards what follows
	deployments []appsv1.Deployment
	daemonSets  []appsv1.DaemonSet
	readAt      time.Time
}

// New returns a view through these clients, with a clock and the lab's speed.
func New(typed kubernetes.Interface, untyped dynamic.Interface, speed float64,
	now func() time.Time) *View {
	return &View{Typed: typed, Untyped: untyped, speed: speed, Now: now, first: map[string]time.Time{}}
}

// Speed is the lab's; 0 means that steps take no time.
func (w *View) Speed() float64 { return w.speed }

// Passed reports whether the real duration of a step has passed, at the lab's speed, since the
// first call for the step.
func (w *View) Passed(step string, outside time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, known := w.first[step]
	if !known {
		since = w.Now()
		w.first[step] = since
	}
	if w.speed == 0 {
		outside = 0
	} else {
		outside = time.Duration(float64(outside) / w.speed)
	}
	return w.Now().Sub(since) >= outside
}

// Restart resets the clock of a step.
func (w *View) Restart(step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.first, step)
}

// Delay returns the annotation of a Pod for its real start-up time.
func (w *View) Delay(outside time.Duration) string {
	if w.speed == 0 {
		return "0s"
	}
	return time.Duration(float64(outside) / w.speed).Round(time.Millisecond).String()
}

// Deployment finds the ready Deployment of a name in whatever namespace; nil if none is.
func (w *View) Deployment(ctx context.Context, name string) (*appsv1.Deployment, error) {
	return w.DeploymentThat(ctx, func(d *appsv1.Deployment) bool { return d.Name == name })
}

// DeploymentThat finds the first ready Deployment of a kind in whatever namespace; nil if none is.
func (w *View) DeploymentThat(ctx context.Context,
	is func(*appsv1.Deployment) bool) (*appsv1.Deployment, error) {
	all, _, err := w.workloads(ctx)
	for _, d := range all {
		if is(&d) && d.Status.ReadyReplicas > 0 && d.DeletionTimestamp == nil {
			return &d, nil
		}
	}
	return nil, err
}

// DaemonSet finds the DaemonSet of a name that has a ready Pod, in whatever namespace; nil if none has.
func (w *View) DaemonSet(ctx context.Context, name string) (*appsv1.DaemonSet, error) {
	_, all, err := w.workloads(ctx)
	for _, d := range all {
		if d.Name == name && d.Status.NumberReady > 0 && d.DeletionTimestamp == nil {
			return &d, nil
		}
	}
	return nil, err
}

// workloads lists the Deployments and DaemonSets of all namespaces, once for all operators that look at the
// same time: every one of them looks for several.
func (w *View) workloads(ctx context.Context) ([]appsv1.Deployment, []appsv1.DaemonSet, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	if !w.readAt.IsZero() && time.Since(w.readAt) < w.Fresh {
		return w.deployments, w.daemonSets, nil
	}
	deployments, err := w.Typed.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	daemonSets, err := w.Typed.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	w.deployments, w.daemonSets, w.readAt = deployments.Items, daemonSets.Items, time.Now()
	return w.deployments, w.daemonSets, nil
}

// List reads custom resources. A kind that is not there has no objects.
func (w *View) List(ctx context.Context, in schema.GroupVersionResource,
	namespace string) ([]unstructured.Unstructured, error) {
	all, err := w.Untyped.Resource(in).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// SetStatus writes the status that change makes of an object's, unless it is the same.
func (w *View) SetStatus(ctx context.Context, in schema.GroupVersionResource,
	object *unstructured.Unstructured, change func(status map[string]any)) error {
	object = object.DeepCopy()
	before, _, err := unstructured.NestedMap(object.Object, "status")
	if err != nil {
		return err
	}
	after, _, err := unstructured.NestedMap(object.Object, "status") // a copy
	if err != nil {
		return err
	}
	if after == nil {
		after = map[string]any{}
	}
	change(after)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	object.Object["status"] = after
	_, err = w.Untyped.Resource(in).Namespace(object.GetNamespace()).UpdateStatus(ctx, object,
		metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or changed: the next look sees it as it is then
	}
	return err
}

// SetCondition puts a condition into a status; its time changes with its value only.
func (w *View) SetCondition(status map[string]any, typ, value, reason, message string, generation int64) {
	condition := map[string]any{
		"type": typ, "status": value, "reason": reason, "message": message,
		"lastTransitionTime": w.Now().UTC().Format(time.RFC3339),
	}
	if generation > 0 {
		condition["observedGeneration"] = generation
	}
	all, _ := status["conditions"].([]any)
	kept := make([]any, 0, len(all)+1)
	for _, one := range all {
		old, ok := one.(map[string]any)
		if !ok || old["type"] != typ {
			kept = append(kept, one)
			continue
		}
		if old["status"] == value {
			condition["lastTransitionTime"] = old["lastTransitionTime"]
		}
	}
	status["conditions"] = append(kept, condition)
}

// DropCondition takes a condition out of a status.
func DropCondition(status map[string]any, typ string) {
	all, _ := status["conditions"].([]any)
	kept := make([]any, 0, len(all))
	for _, one := range all {
		if old, ok := one.(map[string]any); !ok || old["type"] != typ {
			kept = append(kept, one)
		}
	}
	status["conditions"] = kept
}

// Offered returns the data of a ConfigMap or Secret.
func (w *View) Offered(ctx context.Context, kind, namespace, name string) (map[string]string, bool, error) {
	values := map[string]string{}
	if kind == "Secret" {
		secret, err := w.Typed.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, false, Unless(err, apierrors.IsNotFound)
		}
		for k, v := range secret.Data {
			values[k] = string(v)
		}
		return values, true, nil
	}
	config, err := w.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, false, Unless(err, apierrors.IsNotFound)
	}
	return config.Data, true, nil
}

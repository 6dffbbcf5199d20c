package operators

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// engineName is the only engine image's: outside it ends in a digest of the image's address.
const engineName = "ei-1ab00001"

// storage takes the steps of the nodes and volumes.
func (l *longhorn) storage(ctx context.Context, manager *appsv1.DaemonSet) error {
	pods, err := l.w.Typed.CoreV1().Pods(manager.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app=" + l.h.workload})
	if err != nil {
		return err
	}
	return l.volumes.Look(ctx, manager.Namespace,
		slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !podReady(&p) }))
}

// engineImage deploys the engine to every node and sets its status once it is deployed.
func (l *longhorn) engineImage(ctx context.Context, manager *appsv1.DaemonSet) error {
	daemons := l.w.Typed.AppsV1().DaemonSets(manager.Namespace)
	err := l.once("engine image", func() error {
		name := "engine-image-" + engineName
		_, err := daemons.Create(ctx, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       appsv1.DaemonSetSpec{Selector: selector(name), Template: l.pod(name, 15*time.Second)},
		}, metav1.CreateOptions{})
		return errors.Join(cluster.Unless(err, apierrors.IsAlreadyExists),
			l.engineState(ctx, manager, "deploying"))
	})
	if err != nil || l.made["engine"] {
		return err
	}
	daemon, err := daemons.Get(ctx, "engine-image-"+engineName, metav1.GetOptions{})
	if err != nil || daemon.Status.NumberReady == 0 ||
		daemon.Status.NumberReady < daemon.Status.DesiredNumberScheduled {
		return err
	}
	return l.once("engine", func() error { return l.engineState(ctx, manager, "deployed") })
}

func (l *longhorn) engineState(ctx context.Context, manager *appsv1.DaemonSet, state string) error {
	image := ""
	if containers := manager.Spec.Template.Spec.Containers; len(containers) > 0 {
		image = strings.Replace(containers[0].Image, "longhorn-manager", "longhorn-engine", 1)
	}
	return l.status(ctx, "engineimages", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "longhorn.io/v1beta2", "kind": "EngineImage",
		"metadata": map[string]any{"name": engineName, "namespace": manager.Namespace},
		"spec":     map[string]any{"image": image},
	}}, func(status map[string]any) { status["state"] = state })
}

// status changes the status of one of Longhorn's objects, which it makes if it is not there.
func (l *longhorn) status(ctx context.Context, resource string, object *unstructured.Unstructured,
	change func(map[string]any)) error {
	api := l.w.Untyped.Resource(longhornKind(resource)).Namespace(object.GetNamespace())
	have, err := api.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = api.Create(ctx, object, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	return l.w.SetStatus(ctx, longhornKind(resource), have, change)
}

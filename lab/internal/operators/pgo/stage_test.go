package pgo

import (
	"context"
	"net/netip"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	untypedfake "k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// stage is a cluster of fakes with a clock that stands still until it is moved.
type stage struct {
	world *cluster.View
	time  time.Time
	pool  netip.Prefix // MetalLB's
}

func newStage(t *testing.T, speed float64, objects ...runtime.Object) *stage {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{postgresClusters(): "PostgresClusterList"}
	s := &stage{time: time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)}
	s.world = cluster.New(typedfake.NewClientset(objects...),
		untypedfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
		speed, func() time.Time { return s.time })
	return s
}

func (s *stage) look(t *testing.T, o interface{ Look(context.Context) error }) {
	t.Helper()
	if err := o.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) create(t *testing.T, in schema.GroupVersionResource, text string) {
	t.Helper()
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.world.Untyped.Resource(in).Namespace(object.GetNamespace()).Create(t.Context(), &object,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) get(t *testing.T, in schema.GroupVersionResource, namespace,
	name string) *unstructured.Unstructured {
	t.Helper()
	object, err := s.world.Untyped.Resource(in).Namespace(namespace).Get(t.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func deployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
}

func create(t *testing.T, s *stage, object runtime.Object) {
	t.Helper()
	var err error
	switch o := object.(type) {
	case *corev1.Secret:
		_, err = s.world.Typed.CoreV1().Secrets(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
	case *corev1.ConfigMap:
		_, err = s.world.Typed.CoreV1().ConfigMaps(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

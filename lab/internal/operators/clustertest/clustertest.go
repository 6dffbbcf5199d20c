// Package clustertest is a cluster of fakes for the tests of operators.
package clustertest

import (
	"context"
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

// Stage is a cluster whose clock stands still until it is moved.
type Stage struct {
	World *cluster.View
	Time  time.Time
}

// Operator is what looks at a Stage.
type Operator interface{ Look(context.Context) error }

// New returns a cluster with these objects. kinds are the lists of the custom resources that it serves.
func New(kinds map[schema.GroupVersionResource]string, speed float64, objects ...runtime.Object) *Stage {
	s := &Stage{Time: time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)}
	s.World = cluster.New(typedfake.NewClientset(objects...),
		untypedfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), speed,
		func() time.Time { return s.Time })
	return s
}

// Look has an operator look once.
func (s *Stage) Look(t *testing.T, o Operator) {
	t.Helper()
	if err := o.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Later moves the clock and has an operator look again.
func (s *Stage) Later(t *testing.T, d time.Duration, o Operator) {
	t.Helper()
	s.Time = s.Time.Add(d)
	s.Look(t, o)
}

// Create creates a custom resource from its JSON.
func (s *Stage) Create(t *testing.T, in schema.GroupVersionResource, text string) {
	t.Helper()
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.World.Untyped.Resource(in).Namespace(object.GetNamespace()).Create(t.Context(), &object,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Add creates a Secret or a ConfigMap.
func (s *Stage) Add(t *testing.T, object runtime.Object) {
	t.Helper()
	var err error
	switch o := object.(type) {
	case *corev1.Secret:
		_, err = s.World.Typed.CoreV1().Secrets(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
	case *corev1.ConfigMap:
		_, err = s.World.Typed.CoreV1().ConfigMaps(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
	default:
		t.Fatalf("neither a Secret nor a ConfigMap: %T", object)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Get reads a custom resource.
func (s *Stage) Get(t *testing.T, in schema.GroupVersionResource, namespace,
	name string) *unstructured.Unstructured {
	t.Helper()
	object, err := s.World.Untyped.Resource(in).Namespace(namespace).Get(t.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// Secret reads a Secret.
func (s *Stage) Secret(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	secret, err := s.World.Typed.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// Deployment is one whose Pod is ready.
func Deployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
}

package operators

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

// routes records the registered routes.
type routes map[string]string

func (r routes) Register(workload, address string) { r[workload] = address }
func (r routes) Unregister(workload string)        { delete(r, workload) }

// stage is a cluster of fakes with a clock that stands still until it is moved.
type stage struct {
	world *cluster.View
	time  time.Time
}

func newStage(t *testing.T, speed float64, objects ...runtime.Object) *stage {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		pools(): "IPAddressPoolList", stores(): "ClusterSecretStoreList", externals(): "ExternalSecretList",
		longhornKind("nodes"): "NodeList", longhornKind("volumes"): "VolumeList",
		longhornKind("replicas"): "ReplicaList", longhornKind("engines"): "EngineList",
		longhornKind("volumeattachments"): "VolumeAttachmentList",
		longhornKind("instancemanagers"):  "InstanceManagerList",
		generators():                      "VaultDynamicSecretList",
		secretStores():                    "SecretStoreList",
	}
	s := &stage{time: time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)}
	s.world = cluster.New(typedfake.NewClientset(objects...),
		untypedfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
		speed, func() time.Time { return s.time })
	return s
}

func (s *stage) look(t *testing.T, o operator) {
	t.Helper()
	if err := o.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// later moves the clock and looks again.
func (s *stage) later(t *testing.T, d time.Duration, o operator) {
	t.Helper()
	s.time = s.time.Add(d)
	s.look(t, o)
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

func (s *stage) secret(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	secret, err := s.world.Typed.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func deployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
}

func configuration(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "one"}, {Name: "two"}}}
}

func (s *stage) bundle(t *testing.T, name string) []byte {
	t.Helper()
	c, err := s.world.Typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Webhooks[0].ClientConfig.CABundle) != string(c.Webhooks[1].ClientConfig.CABundle) {
		t.Error("one webhook of the configuration has the authority, the other has not")
	}
	return c.Webhooks[0].ClientConfig.CABundle
}

func TestAFailingOperatorIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		looks, reports := 0, []string{}
		o := failing{func() {
			if looks++; looks == 3 {
				cancel()
			}
		}}
		pause := func() time.Duration { return interval }
		play(ctx, o, pause, func(err error) { reports = append(reports, err.Error()) })
		if len(reports) != 1 || !strings.Contains(reports[0], "panic: odd object") {
			t.Errorf("after %d looks: %q", looks, reports)
		}
	})
}

func TestOperatorsShareAListThatIsFresh(t *testing.T) {
	s := newStage(t, 0)
	client := s.world.Typed.(*typedfake.Clientset)
	lists := func(fresh time.Duration) int {
		s.world.Fresh = fresh
		client.ClearActions()
		for range 3 {
			if _, err := s.world.Deployment(t.Context(), "controller"); err != nil {
				t.Fatal(err)
			}
		}
		return len(client.Actions())
	}
	if own, shared := lists(0), lists(time.Hour); own != 6 || shared != 0 {
		t.Errorf("%d requests without sharing, want 6; %d with the fresh list, want none", own, shared)
	}
}

func TestTheLabIsQuietOnceNobodyAsksFromOutside(t *testing.T) {
	var none *cluster.Asks
	asks, now := &cluster.Asks{}, time.Now()
	asks.Outside(now)
	if none.Quiet(now, idle) || asks.Quiet(now.Add(idle), idle) || !asks.Quiet(now.Add(idle+1), idle) {
		t.Error("the lab is quiet before the time without a request is over, or not after it")
	}
}

type failing struct{ looked func() }

func (f failing) Look(context.Context) error {
	f.looked()
	panic("odd object")
}
func (f failing) Close() {}

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

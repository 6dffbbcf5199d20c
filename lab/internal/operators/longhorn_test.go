package operators

import (
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

func longhornObjects() []runtime.Object {
	manager := func(name string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system", Name: "longhorn-manager-" + name,
				Labels: map[string]string{"app": "longhorn-manager"}},
			Spec: corev1.PodSpec{NodeName: name},
			Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			},
		}
	}
	return []runtime.Object{
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system",
			Name: "longhorn-manager"}, Status: appsv1.DaemonSetStatus{NumberReady: 1}},
		clustertest.Deployment("longhorn-system", "longhorn-driver-deployer"),
		manager("worker-01", corev1.ConditionTrue), manager("worker-02", corev1.ConditionFalse),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-01", UID: "n",
			Labels: map[string]string{"lab.castle/kubelet": "true"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
				Status: corev1.ConditionTrue}}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system",
			Name: "longhorn-storageclass"}, Data: map[string]string{
			"storageclass.yaml": "kind: StorageClass\napiVersion: storage.k8s.io/v1\n" +
				"metadata: {name: longhorn}\nprovisioner: driver.longhorn.io\n"}},
	}
}

func TestLonghornsManagerMakesItsWebhookAndThenItsDriver(t *testing.T) {
	s, r := newStage(1, longhornObjects()...), routes{}
	l := newLonghorn(s.World, r, t.TempDir())
	defer l.Close()
	webhooks := s.World.Typed.AdmissionregistrationV1().ValidatingWebhookConfigurations()

	s.Look(t, l)
	if _, err := webhooks.Get(t.Context(), validator, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the webhook configuration is there before its time: %v", err)
	}
	s.Later(t, 4*time.Second, l)
	c, err := webhooks.Get(t.Context(), validator, metav1.GetOptions{})
	if err != nil || len(c.Webhooks) != 1 || len(c.Webhooks[0].ClientConfig.CABundle) == 0 {
		t.Fatalf("webhook configuration: %+v %v", c, err)
	}
	if r["longhorn-system/longhorn-manager:9502"] == "" {
		t.Errorf("the webhook is configured and does not listen: %v", r)
	}
	for name, want := range map[string]string{"longhorn-manager-worker-01": "longhorn-admission-webhook",
		"longhorn-manager-worker-02": ""} {
		pod, err := s.World.Typed.CoreV1().Pods("longhorn-system").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || pod.Labels["longhorn.io/admission-webhook"] != want {
			t.Errorf("labels of %s: %v %v", name, pod.Labels, err)
		}
	}
	s.Later(t, 5*time.Second, l)
	if _, err := s.World.Typed.StorageV1().StorageClasses().Get(t.Context(), "longhorn",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if got := s.Get(t, longhornKind("nodes"), "longhorn-system",
		"worker-01"); cluster.ConditionOf(got.Object, "Schedulable") != "True" || disk(t, s) != "" {
		t.Errorf("node: %v", got.Object["status"])
	}
	if _, err := s.World.Typed.AppsV1().DaemonSets("longhorn-system").Get(t.Context(), "longhorn-csi-plugin",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the driver is there before its time: %v", err)
	}
	s.Later(t, 4*time.Second, l)
	if got := disk(t, s); got != "True" {
		t.Errorf("disk: %q", got)
	}
	if got := s.Get(t, longhornKind("instancemanagers"), "longhorn-system",
		"instance-manager-worker-01"); cluster.Text(got.Object, "status", "currentState") != "starting" {
		t.Errorf("instance manager: %v", got.Object["status"])
	}
	for _, name := range []string{"csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"} {
		if _, err := s.World.Typed.AppsV1().Deployments("longhorn-system").Get(t.Context(), name,
			metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.World.Typed.AppsV1().DaemonSets("longhorn-system").Get(t.Context(), "longhorn-csi-plugin",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// disk is the condition Schedulable of the only disk of worker-01.
func disk(t *testing.T, s *clustertest.Stage) string {
	t.Helper()
	disk, _, err := unstructured.NestedMap(s.Get(t, longhornKind("nodes"), "longhorn-system",
		"worker-01").Object, "status", "diskStatus", "default-disk")
	if err != nil {
		t.Fatal(err)
	}
	return cluster.ConditionOf(map[string]any{"status": disk}, "Schedulable")
}

func TestTheEngineIsDeployedOnceItIsOnEveryNode(t *testing.T) {
	s := newStage(0, longhornObjects()...)
	l := newLonghorn(s.World, routes{}, t.TempDir())
	defer l.Close()
	s.Look(t, l)
	daemons := s.World.Typed.AppsV1().DaemonSets("longhorn-system")
	engine, err := daemons.Get(t.Context(), "engine-image-"+engineName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		ready int32
		state string
	}{{0, "deploying"}, {1, "deploying"}, {2, "deployed"}} {
		engine.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberReady: step.ready}
		if engine, err = daemons.UpdateStatus(t.Context(), engine, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.Look(t, l)
		if got := cluster.Text(s.Get(t, longhornKind("engineimages"), "longhorn-system",
			engineName).Object, "status",
			"state"); got != step.state {
			t.Errorf("%d of 2 ready: %s", step.ready, got)
		}
	}
}

func TestLonghornRefusesAJobWhoseTimeIsNone(t *testing.T) {
	for spec, want := range map[string]string{
		`{"name":"probe","task":"snapshot","cron":"0 0 1 1 *","retain":1}`: "",
		`{"name":"probe","task":"snapshot","cron":"@daily"}`:               "",
		`{"name":"probe","task":"snapshot","cron":"never"}`: "invalid cron format(never): " +
			"expected exactly 5 fields, found 1: [never]",
		`{"name":"probe","task":"sing","cron":"@daily"}`: "recurring job task sing is not valid",
		`{"name":"probe","task":"snapshot"}`:             "invalid job probe",
	} {
		r := &admissionv1.AdmissionRequest{Name: "probe", Operation: admissionv1.Create,
			Resource: metav1.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2",
				Resource: "recurringjobs"},
			Object: runtime.RawExtension{Raw: []byte(`{"spec":` + spec + `}`)}}
		got := ""
		if err := (&longhorn{}).review(t.Context(), r); err != nil {
			got = err.Error()
			if !apierrors.IsInvalid(err) {
				t.Errorf("%s: the denial is no 422: %v", spec, err)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

func TestANodeHasTheDriverOnceItsPluginIsReady(t *testing.T) {
	plugin := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system", Name: "plugin",
			Labels: map[string]string{"app": "longhorn-csi-plugin"}},
		Spec: corev1.PodSpec{NodeName: "worker-01"},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	s := newStage(0,
		append(longhornObjects(), plugin)...)
	l := newLonghorn(s.World, routes{}, t.TempDir())
	defer l.Close()
	s.Look(t, l)
	node, err := s.World.Typed.StorageV1().CSINodes().Get(t.Context(), "worker-01", metav1.GetOptions{})
	if err != nil || len(node.Spec.Drivers) != 1 || node.Spec.Drivers[0].Name != "driver.longhorn.io" ||
		node.OwnerReferences[0].UID != "n" {
		t.Errorf("csi node: %+v %v", node, err)
	}
}

func TestNothingOfLonghornOutlivesItsManager(t *testing.T) {
	s, r := newStage(0, longhornObjects()...), routes{}
	l := newLonghorn(s.World, r, t.TempDir())
	defer l.Close()
	s.Look(t, l)
	if err := s.World.Typed.AppsV1().DaemonSets("longhorn-system").Delete(t.Context(), "longhorn-manager",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, l)
	_, class := s.World.Typed.StorageV1().StorageClasses().Get(t.Context(), "longhorn", metav1.GetOptions{})
	_, hook := s.World.Typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Get(t.Context(), validator,
			metav1.GetOptions{})
	_, driver := s.World.Typed.StorageV1().CSIDrivers().Get(t.Context(), driver, metav1.GetOptions{})
	for _, err := range []error{class, hook, driver} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("left over: %v", err)
		}
	}
	if len(r) > 0 {
		t.Errorf("still routed: %v", r)
	}
}

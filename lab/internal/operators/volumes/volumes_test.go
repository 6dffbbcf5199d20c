package volumes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	untypedfake "k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const namespace = "longhorn-system"

// stage is a cluster of fakes with Longhorn on some nodes, and a clock that stands still until it is moved.
type stage struct {
	w       *cluster.View
	v       *Volumes
	fake    *untypedfake.FakeDynamicClient // with admission: the one behind
	dir     string
	time    time.Time
	nodes   []string
	started int // instance managers
}

func newStage(t *testing.T, faults cluster.Faults, nodes ...string) *stage {
	t.Helper()
	return newStageAt(t, 1, faults, nodes...)
}

// newStageAt has a speed; at 0, all steps are due at once.
func newStageAt(t *testing.T, speed float64, faults cluster.Faults, nodes ...string) *stage {
	t.Helper()
	s := &stage{time: time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC), nodes: nodes, dir: t.TempDir()}
	kinds := map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Node", "Volume", "Replica", "Engine", "VolumeAttachment",
		"InstanceManager", "EngineImage", "BackupTarget", "BackupVolume", "Backup", "Snapshot"} {
		kinds[Resource(strings.ToLower(kind)+"s")] = kind + "List"
	}
	var objects []runtime.Object
	for _, name := range nodes {
		objects = append(objects, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{running: "true"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
				Status: corev1.ConditionTrue}}}})
	}
	objects = append(objects, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "longhorn"},
		Provisioner: driver, Parameters: map[string]string{"numberOfReplicas": "2"}})
	s.w = cluster.New(typedfake.NewClientset(objects...),
		untypedfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), speed,
		func() time.Time { return s.time })
	s.w.Faults = faults
	s.v = New(s.w, s.dir)
	t.Cleanup(func() { s.v.Close() })
	s.look(t)
	s.later(t, disksAfter)
	return s
}

// look takes all steps that are due, starts the instance managers that were made, and binds what was
// provisioned.
func (s *stage) look(t *testing.T) {
	t.Helper()
	var managers []corev1.Pod
	for _, name := range s.nodes {
		managers = append(managers, corev1.Pod{Spec: corev1.PodSpec{NodeName: name}})
	}
	for range 4 { // a step may need what another one has made
		if err := s.v.Look(t.Context(), namespace, managers); err != nil {
			t.Fatal(err)
		}
		s.bind(t)
		pods, err := s.w.Typed.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			if ready(&p) {
				continue
			}
			s.started++
			p.UID = types.UID(fmt.Sprint("manager-", s.started))
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if _, err := s.w.Typed.CoreV1().Pods(namespace).Update(t.Context(), &p,
				metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// bind does the work of Kubernetes' volume binder.
func (s *stage) bind(t *testing.T) {
	t.Helper()
	api := s.w.Typed.CoreV1().PersistentVolumes()
	pvs, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pv := range pvs.Items {
		if pv.Status.Phase == "" && pv.Spec.ClaimRef != nil {
			pv.Status.Phase = corev1.VolumeBound
			if _, err := api.UpdateStatus(t.Context(), &pv, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// later moves the clock and looks again.
func (s *stage) later(t *testing.T, d time.Duration) {
	t.Helper()
	s.time = s.time.Add(d)
	s.look(t)
}

// node changes a node of Kubernetes.
func (s *stage) node(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	n, err := s.w.Typed.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(n)
	if _, err := s.w.Typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look(t)
}

func cordon(n *corev1.Node)   { n.Spec.Unschedulable = true }
func uncordon(n *corev1.Node) { n.Spec.Unschedulable = false }
func off(n *corev1.Node) {
	delete(n.Labels, running)
	n.Annotations = map[string]string{stopped: fmt.Sprint(len(n.Annotations[stopped]), "x")}
}
func on(n *corev1.Node) { n.Labels = map[string]string{running: "true"} }

// claims makes a claim, and a Pod on a node that uses it.
func (s *stage) claims(t *testing.T, name, node string) {
	t.Helper()
	class := "longhorn"
	api := s.w.Typed.CoreV1().PersistentVolumeClaims("db")
	_, err := api.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name, UID: types.UID(name),
			Annotations: map[string]string{provisionedBy: driver}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi")}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.pod(t, name, node)
	s.look(t)
	s.later(t, attaches)
}

func (s *stage) pod(t *testing.T, pvc, node string) {
	t.Helper()
	_, err := s.w.Typed.CoreV1().Pods("db").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: pvc},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc}}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stage) deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	if err := s.w.Typed.CoreV1().Pods(namespace).Delete(t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look(t)
}

// is describes the volume of a claim: its state, robustness and node, and where its intact replicas are.
func (s *stage) is(t *testing.T, pvc string) string {
	t.Helper()
	name := "pvc-" + pvc
	if pvc == lastVolume {
		name = pvc
	}
	o, err := s.w.Untyped.Resource(Resource("volumes")).Namespace(namespace).Get(t.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var on []string
	replicas, err := list[replica](t.Context(), s.w, "replicas", namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range replicas {
		if r.Spec.VolumeName == name && r.intact() {
			on = append(on, r.Spec.NodeID)
		}
	}
	slices.Sort(on)
	text := func(field string) string { return cluster.Text(o.Object, "status", field) }
	return strings.TrimSpace(fmt.Sprint(text("state"), " ", text("robustness"), " ", text("currentNodeID"),
		" ", on))
}

func (s *stage) wants(t *testing.T, pvc, want string) {
	t.Helper()
	if got := s.is(t, pvc); got != want {
		t.Errorf("volume of %s: %s, want %s", pvc, got, want)
	}
}

// protected reports whether a node's instance manager has a budget.
func (s *stage) protected(t *testing.T, node string) bool {
	t.Helper()
	_, err := s.w.Typed.PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), managerOf(node),
		metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// patch merges a patch into one of Longhorn's objects.
func (s *stage) patch(t *testing.T, plural, name, patch string) {
	t.Helper()
	if _, err := s.w.Untyped.Resource(Resource(plural)).Namespace(namespace).Patch(t.Context(), name,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look(t)
}

func TestAVolumeFollowsThePodThatUsesItsClaim(t *testing.T) {
	s := newStage(t, cluster.Faults{}, "w-01", "w-02")
	s.claims(t, "data", "w-01")
	s.wants(t, "data", "attached healthy w-01 [w-01 w-02]")
	pv, err := s.w.Typed.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-data", metav1.GetOptions{})
	if err != nil || pv.Spec.ClaimRef.UID != "data" || pv.Spec.CSI.VolumeHandle != "pvc-data" {
		t.Errorf("PersistentVolume: %+v, %v", pv, err)
	}
	s.deletePod(t, "db", "data")
	s.later(t, detaches)
	s.wants(t, "data", "detached unknown  [w-01 w-02]")
	s.pod(t, "data", "w-02")
	s.look(t)
	s.later(t, attaches)
	s.wants(t, "data", "attached healthy w-02 [w-01 w-02]")
	engines, err := list[engine](t.Context(), s.w, "engines", namespace)
	if err != nil || len(engines) != 1 || engines[0].Spec.NodeID != "w-02" {
		t.Errorf("engines: %+v, %v", engines, err)
	}
	if err := s.w.Typed.CoreV1().PersistentVolumeClaims("db").Delete(t.Context(), "data",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pv.Status.Phase = corev1.VolumeReleased
	if _, err := s.w.Typed.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), pv,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look(t)
	if _, err := s.w.Typed.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-data",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the released volume is still there: %v", err)
	}
}

func TestAMachineThatRestartsLeavesItsVolumesDegraded(t *testing.T) {
	s := newStage(t, cluster.Faults{}, "w-01", "w-02")
	s.claims(t, "data", "w-01")
	s.node(t, "w-02", off)
	s.wants(t, "data", "attached degraded w-01 [w-01]")
	if is := s.ready(t, "w-02"); is != "False KubernetesNodeNotReady" {
		t.Errorf("node that is off: Ready %s", is)
	}
	s.node(t, "w-02", on)
	s.wants(t, "data", "attached degraded w-01 [w-01]")
	s.later(t, rebuilds)
	s.wants(t, "data", "attached healthy w-01 [w-01 w-02]")
	// A machine that is back before anybody looks.
	s.node(t, "w-02", func(n *corev1.Node) { n.Annotations[stopped] = "again" })
	s.wants(t, "data", "attached degraded w-01 [w-01]")
	// A volume that nobody uses loses no replica.
	s.later(t, rebuilds)
	s.deletePod(t, "db", "data")
	s.later(t, detaches)
	s.node(t, "w-02", off)
	s.node(t, "w-02", on)
	s.wants(t, "data", "detached unknown  [w-01 w-02]")
}

// ready is the condition Ready of Longhorn's node.
func (s *stage) ready(t *testing.T, node string) string {
	t.Helper()
	o, err := s.w.Untyped.Resource(Resource("nodes")).Namespace(namespace).Get(t.Context(), node,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.ConditionOf(o.Object, "Ready") + " " + cluster.OfCondition(o.Object, "Ready", "reason")
}

func TestTheLastReplicaIsSalvaged(t *testing.T) {
	s := newStage(t, cluster.Faults{}, "w-01")
	s.claims(t, "data", "w-01")
	s.wants(t, "data", "attached degraded w-01 [w-01]") // no other node takes a replica
	s.node(t, "w-01", off)
	s.wants(t, "data", "attached unknown w-01 [w-01]")
	s.node(t, "w-01", on)
	s.wants(t, "data", "attached faulted w-01 []")
	s.later(t, salvages)
	s.wants(t, "data", "attached degraded w-01 [w-01]")
}

func TestACordonedNodeMayBeDrainedOnceItsVolumesAreSafe(t *testing.T) {
	s := newStage(t, cluster.Faults{}, "w-01", "w-02")
	s.claims(t, "data", "w-01")
	if !s.protected(t, "w-01") || !s.protected(t, "w-02") {
		t.Fatal("an instance manager has no budget")
	}
	s.node(t, "w-01", cordon)
	if !s.protected(t, "w-01") {
		t.Error("the budget is gone, and a volume is attached")
	}
	s.deletePod(t, "db", "data")
	s.later(t, detaches)
	if s.protected(t, "w-01") {
		t.Error("the budget stays, and another node has an intact replica")
	}
	s.pod(t, "data", "w-02")
	s.look(t)
	s.later(t, attaches)
	s.wants(t, "data", "attached healthy w-02 [w-01 w-02]")
	s.deletePod(t, namespace, managerOf("w-01"))
	s.later(t, time.Minute)
	s.wants(t, "data", "attached degraded w-02 [w-02]")
	if is := s.manager(t, "w-01"); is != "stopped" {
		t.Errorf("the instance manager of a cordoned node is %s", is)
	}
	s.node(t, "w-01", uncordon)
	if is := s.manager(t, "w-01"); is != "running" || !s.protected(t, "w-01") {
		t.Errorf("uncordoned: the instance manager is %s, protected %v", is, s.protected(t, "w-01"))
	}
	s.later(t, rebuilds)
	s.wants(t, "data", "attached healthy w-02 [w-01 w-02]")
}

// manager is the state of a node's instance manager.
func (s *stage) manager(t *testing.T, node string) string {
	t.Helper()
	o, err := s.w.Untyped.Resource(Resource("instancemanagers")).Namespace(namespace).Get(t.Context(),
		managerOf(node), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Text(o.Object, "status", "currentState")
}

func TestTheDrainPolicyDecides(t *testing.T) {
	for policy, want := range map[string]struct {
		protects bool
		replicas string // of the volume, at last
	}{
		keepsLast:      {true, "[w-01]"},
		movesLast:      {false, "[w-02]"},
		movesAll:       {false, "[w-02]"},
		ignoresStopped: {false, "[w-01]"},
		alwaysDrains:   {false, "[w-01]"},
	} {
		t.Run(policy, func(t *testing.T) {
			s := newStage(t, cluster.Faults{ReplicaLast: "01"}, "w-01", "w-02")
			s.wants(t, lastVolume, "detached unknown  [w-01]")
			s.patch(t, "settings", drainPolicy, `{"value":"`+policy+`"}`)
			s.node(t, "w-01", cordon)
			s.later(t, rebuilds)
			s.wants(t, lastVolume, "detached unknown  "+want.replicas)
			if got := s.protected(t, "w-01"); got != want.protects {
				t.Errorf("protected %v, want %v", got, want.protects)
			}
		})
	}
}

func TestTheChartsValueIsTheFirstDrainPolicy(t *testing.T) {
	for text, want := range map[string]string{"": keepsLast,
		"node-drain-policy: always-allow": alwaysDrains} {
		s := &stage{time: time.Now()}
		s.w = cluster.New(typedfake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultSettings},
			Data:       map[string]string{"default-setting.yaml": text}}),
			untypedfake.NewSimpleDynamicClient(runtime.NewScheme()), 0, func() time.Time { return s.time })
		v := New(s.w, t.TempDir())
		if err := v.settings(t.Context(), namespace); err != nil || v.policy != want {
			t.Errorf("%q: %s, %v", text, v.policy, err)
		}
	}
}

func TestReplicasLeaveANodeOnRequest(t *testing.T) {
	s := newStage(t, cluster.Faults{}, "w-01", "w-02", "w-03")
	s.claims(t, "data", "w-01")
	s.wants(t, "data", "attached healthy w-01 [w-01 w-02]")
	s.patch(t, "nodes", "w-02", `{"spec":{"allowScheduling":false,"evictionRequested":true}}`)
	s.wants(t, "data", "attached healthy w-01 [w-01 w-02]")
	s.later(t, rebuilds)
	s.wants(t, "data", "attached healthy w-01 [w-01 w-03]")

	// Its machine leaves.
	if err := s.w.Typed.CoreV1().Nodes().Delete(t.Context(), "w-02", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.nodes = []string{"w-01", "w-03"}
	s.look(t)
	if _, err := s.w.Untyped.Resource(Resource("nodes")).Namespace(namespace).Get(t.Context(), "w-02",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Longhorn's node is still there: %v", err)
	}
}

func TestAReplicaIsReplacedAfterAWhile(t *testing.T) {
	s := newStage(t, cluster.Faults{}, "w-01", "w-02", "w-03")
	s.claims(t, "data", "w-01")
	s.node(t, "w-02", off)
	s.later(t, replenishes-time.Second)
	s.wants(t, "data", "attached degraded w-01 [w-01]")
	s.later(t, time.Second)
	s.later(t, rebuilds)
	s.wants(t, "data", "attached healthy w-01 [w-01 w-03]")
}

func TestVolumesStayDegradedForAWhile(t *testing.T) {
	s := newStage(t, cluster.Faults{Times: map[string]time.Duration{"volume-degraded": 10 * time.Second}},
		"w-01", "w-02")
	var told []string
	s.w.Turn = func(turn cluster.Turn) { told = append(told, fmt.Sprint(turn.Fault, " ", turn.Ends)) }
	s.claims(t, "data", "w-01")
	s.node(t, "w-02", off)
	if len(told) > 0 {
		t.Errorf("before the machine is back: %v", told)
	}
	s.node(t, "w-02", on)
	s.later(t, rebuilds)
	s.wants(t, "data", "attached degraded w-01 [w-01]")
	s.later(t, 10*time.Second)
	s.wants(t, "data", "attached healthy w-01 [w-01 w-02]")
	if want := []string{"volume-degraded false", "volume-degraded true"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

func TestAVolumeStaysWhereItWasAttachedByHand(t *testing.T) {
	s := newStage(t, cluster.Faults{}, "w-01", "w-02")
	s.claims(t, "data", "w-01")
	s.patch(t, "volumeattachments", "pvc-data", `{"spec":{"attachmentTickets":{"":{"id":"",`+
		`"type":"longhorn-api","nodeID":"w-01"}}}}`)
	s.deletePod(t, "db", "data")
	s.later(t, detaches)
	s.wants(t, "data", "attached healthy w-01 [w-01 w-02]")
	s.node(t, "w-01", cordon)
	if !s.protected(t, "w-01") {
		t.Error("the budget is gone, and a volume is attached")
	}
}

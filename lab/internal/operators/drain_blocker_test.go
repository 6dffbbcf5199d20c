package operators

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// worked are a control plane and a worker with Pods.
func worked() []runtime.Object {
	yes := true
	pod := func(name, node, owner string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name,
				Labels:          map[string]string{"app": name},
				OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: "x", Controller: &yes}}},
			Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
				Status: corev1.ConditionTrue}}},
		}
	}
	return []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-01",
			Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-01"}},
		pod("a-api", "cp-01", "ReplicaSet"), pod("a-agent", "worker-01", "DaemonSet"),
		pod("b-guarded", "worker-01", "ReplicaSet"), pod("c-web", "worker-01", "ReplicaSet"),
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "b"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"app": "b-guarded"}}}},
	}
}

func TestABudgetBlocksTheFirstDrainForAWhile(t *testing.T) {
	s, told := faulty(t, blockedName, worked()...)
	s.World.Asks = &cluster.Asks{}
	b := &drainBlocker{w: s.World}
	blocked := func() bool {
		t.Helper()
		all, err := s.World.Typed.PolicyV1().PodDisruptionBudgets("web").List(t.Context(),
			metav1.ListOptions{LabelSelector: blockedLabel})
		if err != nil {
			t.Fatal(err)
		}
		pods, err := s.World.Typed.CoreV1().Pods("web").List(t.Context(),
			metav1.ListOptions{LabelSelector: blockedLabel, FieldSelector: "metadata.name=drain-blocked"})
		if err != nil || len(all.Items) > 0 && len(pods.Items) == 0 {
			t.Fatalf("%d Pods beside the budget, %v", len(pods.Items), err)
		}
		return len(all.Items) > 0
	}
	s.Look(t, b)
	victim, err := s.World.Typed.CoreV1().Pods("web").Get(t.Context(), "c-web", metav1.GetOptions{})
	if err != nil || victim.Labels[blockedLabel] == "" || !blocked() {
		t.Fatalf("labels of the Pod: %v, blocked %v, %v", victim.Labels, blocked(), err)
	}
	s.Later(t, time.Hour, b) // nobody drains
	wantTold(t, told)
	s.World.Asks.Add(s.Time, "/api/v1/namespaces/web/pods/other/eviction")
	s.Later(t, time.Second, b)
	wantTold(t, told)
	for range 10 {
		s.World.Asks.Add(s.Time, "/api/v1/namespaces/web/pods/c-web/eviction")
		s.Later(t, time.Second, b)
	}
	wantTold(t, told, "drain-blocked begins")
	if !blocked() {
		t.Error("the budget is gone before its time")
	}
	for range 3 {
		s.Later(t, time.Second, b)
	}
	wantTold(t, told, "drain-blocked begins", "drain-blocked ends")
	if blocked() {
		t.Error("the budget is still there")
	}
	s.Later(t, time.Hour, b)
	if blocked() {
		t.Error("the budget is there again")
	}
}

func TestAnotherPodIsBlockedIfTheFirstOneGoes(t *testing.T) {
	s, _ := faulty(t, blockedName, worked()...)
	s.World.Asks = &cluster.Asks{}
	b := &drainBlocker{w: s.World}
	s.Look(t, b)
	api := s.World.Typed.CoreV1().Pods("web")
	if err := api.Delete(t.Context(), "c-web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, b)
	next := worked()[5].(*corev1.Pod)
	next.Name = "d-web"
	if _, err := api.Create(t.Context(), next, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, b)
	if got, err := api.Get(t.Context(), "d-web", metav1.GetOptions{}); err != nil ||
		got.Labels[blockedLabel] == "" {
		t.Errorf("labels: %v, %v", got.Labels, err)
	}
}

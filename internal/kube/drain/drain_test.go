package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

func TestOnlyCastlesOwnCordonIsLifted(t *testing.T) {
	f, target := newFakeCluster(t, `{kind: Node, apiVersion: v1, metadata: {name: w-01}}`,
		`{kind: Node, apiVersion: v1, metadata: {name: w-02}, spec: {unschedulable: true}}`)
	unschedulable := func(node string) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		spec, _ := f.objects["/api/v1/nodes/"+node]["spec"].(map[string]any)
		return spec["unschedulable"] == true
	}
	f.down = 2 // requests: the virtual address moves
	for _, run := range []string{"run-1", "run-1", "run-2"} {
		if foreign, err := Cordon(t.Context(), target, "w-01", run); foreign || err != nil ||
			!unschedulable("w-01") {
			t.Fatalf("%s: cordoned %v, foreign %v, %v", run, unschedulable("w-01"), foreign, err)
		}
	}
	if foreign, err := Cordon(t.Context(), target, "w-02", "run-2"); !foreign || err != nil {
		t.Errorf("somebody else's: foreign %v, %v", foreign, err)
	}
	if got, err := Nodes(t.Context(), target); fmt.Sprint(got) != "map[w-01:1 w-02:2]" || err != nil {
		t.Errorf("cordoned: %v, %v", got, err)
	}
	for node, want := range map[string]bool{"w-01": false, "w-02": true, "gone": false} {
		if err := Uncordon(t.Context(), target, node); err != nil || unschedulable(node) != want {
			t.Errorf("%s: unschedulable %v, %v", node, unschedulable(node), err)
		}
	}
	if got, err := Nodes(t.Context(), target); got["w-01"] != Nobody || len(got) != 2 || err != nil {
		t.Errorf("afterwards: %v, %v", got, err)
	}
	if _, err := Cordon(t.Context(), target, "gone", "run"); gate.KindOf(err) != gate.NotFound {
		t.Errorf("a node that does not exist: %v", err)
	}
}

// drained drains w-01 without pauses, and returns the reasons to wait.
func drained(t *testing.T, target gate.Target, force bool) (reasons []string, err error) {
	t.Helper()
	ctx, stop := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("out of time"))
	defer stop()
	d := drain{target: target, cluster: client.New(target, ""), node: "w-01", force: force,
		longest: time.Millisecond, pods: map[types.UID]bool{}}
	err = d.run(ctx, func(reason string) { reasons = append(reasons, reason) })
	return reasons, err
}

func TestADrainEvictsWhatItsNodeDoesNotKeep(t *testing.T) {
	static := strings.Replace(pod("static"), "ownerReferences:",
		"annotations: {kubernetes.io/config.mirror: x}, ownerReferences:", 1)
	f, target := newFakeCluster(t, pod("web"), strings.Replace(pod("agent"), "ReplicaSet",
		"DaemonSet", 1), static, strings.Replace(pod("elsewhere"), "w-01", "w-02", 1),
		strings.Replace(pod("done"), "Running", "Succeeded", 1),
		strings.Replace(pod("cache"), "{nodeName: w-01}", "{nodeName: w-01, volumes: [{emptyDir: {}}]}", 1))
	f.down = 1
	reasons, err := drained(t, target, false)
	slices.Sort(f.asked)
	if err != nil || len(reasons) > 0 || fmt.Sprint(f.asked) != "[cache web]" {
		t.Errorf("evicted %v, reasons %q, %v", f.asked, reasons, err)
	}
}

func TestADrainSaysEachReasonOnceAndGoesOn(t *testing.T) {
	manager := strings.Replace(pod("im"), "app: im", "app: im, longhorn.io/component: instance-manager", 1)
	f, target := newFakeCluster(t, pod("web"), pod("db"), pod("api"), pod("two"), manager,
		budgetFor("im", "im", "", "expectedPods: 1"),
		budgetFor("web", "web", "", "expectedPods: 1"), budgetFor("two-a", "two", "", "expectedPods: 2"),
		budgetFor("two-b", "two", "", "expectedPods: 2"))
	requests := map[string]int{}
	f.evict = func(pod string) *metav1.Status {
		if requests[pod]++; requests[pod] > 3 {
			return nil
		}
		switch pod {
		case "web", "im":
			return refusedByBudget()
		case "two":
			return &metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "This pod has more"}
		case "api":
			return &metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "admission webhook " +
				"\"x\" denied it: \u001b[2J"}
		}
		return &metav1.Status{Status: metav1.StatusFailure, Code: 429,
			Reason: metav1.StatusReasonTooManyRequests, Message: "the server is busy"}
	}
	reasons, err := drained(t, target, false)
	want := []string{
		`waits for Pod web/api: its eviction was refused: admission webhook "x" denied it: \u001b[2J`,
		"waits for Pod web/im: Longhorn releases it once no volume is attached to the node and other nodes " +
			"have the data",
		"waits for Pod web/two: Kubernetes evicts no Pod with two PodDisruptionBudgets (two-a and two-b)",
		"waits for Pod web/web: its PodDisruptionBudget web allows no disruption now",
	}
	if slices.Sort(reasons); err != nil || !slices.Equal(reasons, want) {
		t.Errorf("reasons %q, %v, want %q", reasons, err, want)
	}
}

func TestADrainEndsWithItsReasons(t *testing.T) {
	f, target := newFakeCluster(t, pod("web"), budgetFor("web", "web", "", "expectedPods: 1"),
		strings.Replace(pod("stuck"), "namespace: web",
			`namespace: web, deletionTimestamp: "2026-01-01T00:00:00Z"`, 1))
	ctx, cancel := context.WithCancelCause(t.Context())
	f.evict = func(string) *metav1.Status {
		if len(f.asked) == 2 { // the second pass: the reasons of the first are there
			cancel(errors.New("interrupt signal received"))
		}
		return refusedByBudget()
	}
	d := drain{target: target, cluster: client.New(target, ""), node: "w-01", longest: time.Millisecond,
		pods: map[types.UID]bool{}}
	err := d.run(ctx, func(string) {})
	for _, want := range []string{"node w-01 is not drained (", "): interrupt signal received",
		"waits for Pod web/stuck: it should have ended at 2026-01-01T00:00:00Z",
		"waits for Pod web/web: its PodDisruptionBudget web allows no disruption now"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestAPodThatStartsAgainOnTheNodeDoesNotHoldTheDrain(t *testing.T) {
	f, target := newFakeCluster(t, pod("tolerant"))
	f.evict = func(name string) *metav1.Status {
		again := map[string]any{}
		maps.Copy(again, f.objects["/api/v1/pods/tolerant"])
		again["metadata"] = map[string]any{"namespace": "web", "name": name, "uid": fmt.Sprint(len(f.asked)),
			"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet",
				"name": "rs", "uid": "u", "controller": true}}}
		f.objects["/api/v1/pods/tolerant"] = again
		return &metav1.Status{Status: metav1.StatusSuccess, Code: 201}
	}
	if _, err := drained(t, target, false); err != nil || len(f.asked) > 2 {
		t.Errorf("%d evictions, %v", len(f.asked), err)
	}
}

func TestAPodWithoutAControllerNeedsForce(t *testing.T) {
	lone := "{kind: Pod, apiVersion: v1, metadata: {namespace: web, name: lone}, spec: {nodeName: w-01}, " +
		"status: {phase: Running}}"
	f, target := newFakeCluster(t, lone, pod("web"))
	if _, err := drained(t, target, false); len(f.asked) > 0 || !strings.Contains(fmt.Sprint(err),
		"drain of node w-01: no controller would start Pod web/lone again") {
		t.Errorf("without force: evicted %v, %v", f.asked, err)
	}
	if got, err := Obstacles(t.Context(), target, "w-01", false, false); len(got) != 1 || err != nil ||
		!strings.HasPrefix(got[0], "Pod web/lone has no controller") {
		t.Errorf("obstacles: %q, %v", got, err)
	}
	if got, err := Obstacles(t.Context(), target, "w-01", true, false); len(got) > 0 || err != nil {
		t.Errorf("obstacles with force: %q, %v", got, err)
	}
	if _, err := drained(t, target, true); len(f.asked) != 2 || err != nil {
		t.Errorf("with force: evicted %v, %v", f.asked, err)
	}
}

func TestAUserWithoutThePermissionEndsTheDrain(t *testing.T) {
	f, target := newFakeCluster(t, pod("web"))
	f.evict = func(string) *metav1.Status {
		return &metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden,
			Message: `pods "web" is forbidden: User "x" cannot create resource "pods/eviction"`}
	}
	if _, err := drained(t, target, false); !gate.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

func TestObstaclesAreBudgetsThatAreNeverMet(t *testing.T) {
	const single = "expectedPods: 1, desiredHealthy: 1, currentHealthy: 1"
	for name, tt := range map[string]struct {
		objects []string
		want    string
	}{
		"one replica, minAvailable 1": {[]string{pod("web"), budgetFor("web", "web", "", single)},
			"Pod web/web is never evicted, because its PodDisruptionBudget web requires 1 of 1 Pods: run " +
				"more replicas, let the budget have maxUnavailable 1, or delete it for the rollout"},
		"maxUnavailable 0": {[]string{pod("web"), budgetFor("web", "web", "",
			"expectedPods: 3, desiredHealthy: 3")}, "requires 3 of 3 Pods"},
		"one may go later": {[]string{pod("web"), budgetFor("web", "web", "",
			"expectedPods: 3, desiredHealthy: 2, currentHealthy: 2, disruptionsAllowed: 0")}, ""},
		"a budget that nobody has counted": {[]string{pod("web"),
			strings.Replace(budgetFor("web", "web", "", single), "generation: 1", "generation: 2", 1)}, ""},
		"another namespace": {[]string{pod("web"),
			strings.Replace(budgetFor("web", "web", "", single), "namespace: web", "namespace: db", 1)}, ""},
		"an unready Pod that may go": {[]string{strings.Replace(pod("web"), `"True"`, `"False"`, 1),
			budgetFor("web", "web", ", unhealthyPodEvictionPolicy: AlwaysAllow", single)}, ""},
		"two budgets": {[]string{pod("web"), budgetFor("a", "web", "", "expectedPods: 2"),
			budgetFor("b", "web", "", "expectedPods: 2")}, "Pod web/web has the PodDisruptionBudgets a and " +
			"b, and Kubernetes evicts no Pod that has more than one: "},
		"a Pod that does not run": {[]string{strings.Replace(pod("web"), "Running", "Pending", 1),
			budgetFor("web", "web", "", single)}, ""},
		"Longhorn deletes its own": {[]string{strings.Replace(pod("im"), "app: im",
			"app: im, longhorn.io/component: instance-manager", 1), budgetFor("im", "im", "", single)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, target := newFakeCluster(t, tt.objects...)
			got, err := Obstacles(t.Context(), target, "w-01", false, false)
			text := strings.Join(got, "\n")
			if err != nil || (text == "") != (tt.want == "") || !strings.Contains(text, tt.want) {
				t.Errorf("got %q, %v, want %q", text, err, tt.want)
			}
		})
	}
}

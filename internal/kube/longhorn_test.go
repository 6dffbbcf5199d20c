package kube

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

const longhornAPI = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/"

// newLonghorn is a cluster with Longhorn. Objects are given by "plural/name", as YAML below "kind".
func newLonghorn(t *testing.T, objects map[string]string) (*fakeAPI, gate.Target) {
	t.Helper()
	f := newFakeAPI(t)
	for kind, plural := range map[string]string{"Replica": "replicas", "Volume": "volumes", "Node": "nodes",
		"Setting": "settings", "VolumeAttachment": "volumeattachments"} {
		f.serves("longhorn.io/v1beta2", kind, plural, true)
	}
	for at, object := range objects {
		f.add(t, longhornAPI+at, object)
	}
	return f, gate.Target{Kubeconfig: f.kubeconfig()}
}

// intactReplica and failedReplica are replicas of a volume on a node.
func intactReplica(volume, node string) string {
	return fmt.Sprintf("spec: {volumeName: %s, nodeID: %s, healthyAt: 2026-01-01T00:00:00Z, failedAt: '', "+
		"desireState: running}\nstatus: {currentState: running}", volume, node)
}

func failedReplica(volume, node string) string {
	return strings.Replace(intactReplica(volume, node), "failedAt: ''", "failedAt: 2026-01-02T00:00:00Z", 1)
}

func newReplica(volume, node string) string {
	return strings.Replace(intactReplica(volume, node), "2026-01-01T00:00:00Z", "''", 1)
}

func TestLastReplicasAreThoseWithoutAnIntactOneElsewhere(t *testing.T) {
	f := newFakeAPI(t)
	target := gate.Target{Kubeconfig: f.kubeconfig()}
	if got, err := LastReplicas(t.Context(), target); len(got) > 0 || err != nil {
		t.Errorf("without Longhorn: %v, %v", got, err)
	}
	_, target = newLonghorn(t, map[string]string{
		"replicas/a-1": intactReplica("a", "w-01"), "replicas/a-2": intactReplica("a", "w-02"),
		"replicas/b-1": intactReplica("b", "w-01"), "replicas/b-2": failedReplica("b", "w-02"),
		"replicas/c-1": intactReplica("c", "w-01"), "replicas/c-2": newReplica("c", "w-02"),
		"replicas/d-1": intactReplica("d", "w-02"),
		"volumes/d":    "status: {kubernetesStatus: {namespace: db, pvcName: \"data\\e[2J\"}}",
	})
	got, err := LastReplicas(t.Context(), target)
	want := map[string][]string{"w-01": {"b", "c"}, "w-02": {`d (db/data\u001b[2J)`}}
	if !reflect.DeepEqual(got, want) || err != nil {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	on, err := ReplicasOn(t.Context(), target, "w-02")
	if want := []string{"a", "b", "c", "d"}; !reflect.DeepEqual(on, want) || err != nil {
		t.Errorf("on w-02: %v, %v, want %v", on, err, want)
	}
}

func TestUnhealthyVolumesAreThoseThatLackReplicas(t *testing.T) {
	f := newFakeAPI(t)
	if got, err := UnhealthyVolumes(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()}); got != nil ||
		err != nil {
		t.Errorf("without Longhorn: %v, %v", got, err)
	}
	volume := func(state, robustness string) string {
		return fmt.Sprintf("spec: {numberOfReplicas: 2}\nstatus: {state: %s, robustness: %s, "+
			"kubernetesStatus: {namespace: db, pvcName: \"data\\e[2J\"}}", state, robustness)
	}
	_, target := newLonghorn(t, map[string]string{
		"volumes/a": volume("attached", "healthy"), "replicas/a-1": intactReplica("a", "w-01"),
		"replicas/a-2": intactReplica("a", "w-02"),
		"volumes/b":    volume("attached", "degraded"), "replicas/b-1": intactReplica("b", "w-01"),
		"volumes/c": volume("detached", "faulted"), "replicas/c-1": failedReplica("c", "w-01"),
		"volumes/d": volume("detached", "unknown"), "replicas/d-1": intactReplica("d", "w-01"),
		"replicas/d-2": failedReplica("d", "w-02"),
		"volumes/e":    volume("detached", "unknown"), "replicas/e-1": newReplica("e", "w-01"),
		// Longhorn has not noticed yet.
		"volumes/f": volume("attached", "healthy"), "replicas/f-1": intactReplica("f", "w-01"),
		"replicas/f-2": failedReplica("f", "w-02"),
		"volumes/g":    volume("attached", "degraded"), "replicas/g-1": intactReplica("g", "w-01"),
		"replicas/g-2": intactReplica("g", "w-02"),
	})
	got, err := UnhealthyVolumes(t.Context(), target)
	want := []string{
		`volume b (db/data\u001b[2J) is degraded: 1 of 2 replicas are intact`,
		`volume c (db/data\u001b[2J) is faulted: it has no usable replica`,
		`volume d (db/data\u001b[2J) is detached with 1 of 2 intact replicas`,
		`volume f (db/data\u001b[2J) is degraded: 1 of 2 replicas are intact`,
		`volume g (db/data\u001b[2J) is degraded: Longhorn has not finished its rebuild`,
	}
	if len(got) != len(want) || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

func TestLonghornKeepsANodeAsItsDrainPolicySays(t *testing.T) {
	stopped := strings.ReplaceAll(intactReplica("a", "w-01"), "running", "stopped")
	free := "{spec: {allowScheduling: true}, status: {conditions: [{type: Schedulable, status: 'True'}]}}"
	cordoned := strings.Replace(free, "'True'", "'False'", 1)
	const last = "volume a has its last intact replica there, and Longhorn's node-drain-policy "
	for name, tt := range map[string]struct {
		policy, here, there, other string // other is the state of node w-02
		want                       string
	}{
		"another replica is intact": {here: intactReplica("a", "w-01"), there: intactReplica("a", "w-02"),
			other: free},
		"its node is cordoned": {here: intactReplica("a", "w-01"), there: intactReplica("a", "w-02"),
			other: cordoned, want: last + "block-if-contains-last-replica keeps node w-01: wait until " +
				"another node has an intact one, or set the policy to allow-if-replica-is-stopped"},
		"the other has failed": {here: intactReplica("a", "w-01"), there: failedReplica("a", "w-02"),
			other: free, want: last + "block-if-contains-last-replica"},
		"the only one": {here: intactReplica("a", "w-01"), other: free, want: last},
		"without data": {here: newReplica("a", "w-01"), other: free},
		"on another node": {there: intactReplica("a", "w-02"),
			other: free},
		"any":           {policy: alwaysDrains, here: intactReplica("a", "w-01"), other: free},
		"stopped":       {policy: drainsStopped, here: stopped, other: free},
		"it still runs": {policy: drainsStopped, here: intactReplica("a", "w-01"), other: free, want: last},
		"Longhorn moves the last one": {policy: movesLast, here: intactReplica("a", "w-01"),
			other: free},
		"Longhorn has no place for it": {policy: movesLast, here: intactReplica("a", "w-01"),
			other: cordoned, want: "volume a has a replica that no other node can take, and Longhorn's " +
				"node-drain-policy block-for-eviction-if-contains-last-replica keeps node w-01: add a node"},
		"Longhorn moves all, and the other node has one": {policy: movesAll,
			here: intactReplica("a", "w-01"), there: intactReplica("a", "w-02"), other: free,
			want: "volume a has a replica that no other node can take"},
	} {
		t.Run(name, func(t *testing.T) {
			f, target := newLonghorn(t, map[string]string{"nodes/w-01": free, "nodes/w-02": tt.other,
				"volumes/a": "spec: {numberOfReplicas: 2}"})
			for at, object := range map[string]string{"replicas/a-1": tt.here, "replicas/a-2": tt.there} {
				if object != "" {
					f.add(t, longhornAPI+at, object)
				}
			}
			if tt.policy != "" {
				f.add(t, longhornAPI+"settings/node-drain-policy", "value: "+tt.policy)
			}
			got, err := BlockingVolumes(t.Context(), target, "w-01")
			if text := strings.Join(got, "\n"); err != nil || (text == "") != (tt.want == "") ||
				!strings.HasPrefix(text, tt.want) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestAReplicaSticksWhereNoOtherNodeCanTakeIt(t *testing.T) {
	const free = "{spec: {allowScheduling: true}, " +
		"status: {conditions: [{type: Schedulable, status: 'True'}]}}"
	cordoned := strings.Replace(free, "'True'", "'False'", 1)
	here, there := intactReplica("a", "w-01"), intactReplica("a", "w-02")
	for name, tt := range map[string]struct {
		replicas          int
		third             string // the state of node w-03; empty: there is none
		objects           map[string]string
		isStuck, isSpared bool
	}{
		"another node is free":       {replicas: 2, third: free},
		"the other node is cordoned": {replicas: 2, third: cordoned, isStuck: true},
		"each node has one":          {replicas: 2, isStuck: true},
		"a new one is being rebuilt": {replicas: 2, third: free, objects: map[string]string{
			"replicas/a-3": newReplica("a", "w-03")}},
		"two others are intact": {replicas: 3, third: free, objects: map[string]string{
			"replicas/a-3": intactReplica("a", "w-03")}, isStuck: true, isSpared: true},
		"one of two others has failed": {replicas: 3, third: free, objects: map[string]string{
			"replicas/a-3": failedReplica("a", "w-03")}, isStuck: true},
		"replicas may share a node": {replicas: 2, objects: map[string]string{
			"settings/replica-soft-anti-affinity": "value: 'true'"}},
		"but not those of this volume": {replicas: 2, isStuck: true, objects: map[string]string{
			"settings/replica-soft-anti-affinity": "value: 'true'",
			"volumes/a": "spec: {numberOfReplicas: 2, " +
				"replicaSoftAntiAffinity: disabled}"}},
		"those of this volume may": {replicas: 2, objects: map[string]string{
			"volumes/a": "spec: {numberOfReplicas: 2, replicaSoftAntiAffinity: enabled}"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, target := newLonghorn(t, map[string]string{"nodes/w-01": free, "nodes/w-02": free,
				"volumes/a":    fmt.Sprintf("spec: {numberOfReplicas: %d}", tt.replicas),
				"replicas/a-1": here, "replicas/a-2": there})
			if tt.third != "" {
				f.add(t, longhornAPI+"nodes/w-03", tt.third)
			}
			for at, object := range tt.objects {
				f.add(t, longhornAPI+at, object)
			}
			got, err := StuckVolumes(t.Context(), target, "w-01")
			if err != nil || (len(got) == 1) != tt.isStuck || tt.isStuck && got[0].Spared != tt.isSpared {
				t.Errorf("got %+v, %v", got, err)
			}
			if tt.isStuck && !strings.HasPrefix(got[0].Text, "volume a is to have ") {
				t.Error(got[0].Text)
			}
		})
	}
}

func TestAVolumeThatSomebodyAttachedByHandKeepsTheNode(t *testing.T) {
	_, target := newLonghorn(t, map[string]string{
		"volumes/a": "spec: {numberOfReplicas: 1}", "volumes/b": "spec: {numberOfReplicas: 1}",
		"volumeattachments/a": "spec: {volume: a, attachmentTickets: {csi-1: {type: csi-attacher, " +
			"nodeID: w-01}}}",
		"volumeattachments/b": "spec: {volume: b, attachmentTickets: {'': {type: longhorn-api, " +
			"nodeID: w-01}}}",
	})
	got, err := BlockingVolumes(t.Context(), target, "w-01")
	const want = "volume b was attached to node w-01 by hand"
	if len(got) != 1 || !strings.HasPrefix(got[0], want) || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := BlockingVolumes(t.Context(), target, "w-02"); len(got) > 0 || err != nil {
		t.Errorf("the other node: %q, %v", got, err)
	}
}

func TestAnEvictionOfReplicasIsUndoneAsItWas(t *testing.T) {
	for name, tt := range map[string]struct{ before, evicts string }{
		"a node that takes replicas": {"{evictionRequested: false, allowScheduling: true}", "true false"},
		"a node that takes none":     {"{evictionRequested: false, allowScheduling: false}", "true false"},
		"somebody else evicts":       {"{evictionRequested: true, allowScheduling: false}", "true false"},
	} {
		t.Run(name, func(t *testing.T) {
			f, target := newLonghorn(t, map[string]string{"nodes/w-01": "kind: Node\nspec: " + tt.before})
			spec := func() string {
				f.mu.Lock()
				defer f.mu.Unlock()
				spec := f.objects[longhornAPI+"nodes/w-01"]["spec"].(map[string]any)
				return fmt.Sprint(spec["evictionRequested"], " ", spec["allowScheduling"])
			}
			before := spec()
			for range 2 { // a run that was killed does it again
				if err := EvictReplicas(t.Context(), target, "w-01"); err != nil || spec() != tt.evicts {
					t.Errorf("evicted: %s, %v", spec(), err)
				}
			}
			for range 2 {
				if err := KeepReplicas(t.Context(), target, "w-01"); err != nil || spec() != before {
					t.Errorf("kept: %s, %v, want %s", spec(), err, before)
				}
			}
			if err := EvictReplicas(t.Context(), target, "w-02"); err != nil {
				t.Errorf("a node that Longhorn does not know: %v", err)
			}
		})
	}
}

func TestANodeThatLeftIsDeletedFromLonghornToo(t *testing.T) {
	f := newFakeAPI(t)
	if err := DeleteNode(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()}, "w-01"); err != nil {
		t.Errorf("no node and no Longhorn: %v", err)
	}
	const stays = longhornAPI + "nodes/w-01"
	for name, tt := range map[string]struct{ replica, other, left string }{
		"without replicas":         {},
		"with a replica":           {failedReplica("a", "w-01"), "", stays},
		"and a failed one":         {failedReplica("a", "w-01"), failedReplica("a", "w-02"), stays},
		"and one of other volumes": {failedReplica("a", "w-01"), intactReplica("b", "w-02"), stays},
		"and an intact one":        {failedReplica("a", "w-01"), intactReplica("a", "w-02"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, target := newLonghorn(t, map[string]string{"nodes/w-01": "kind: Node\nspec: " +
				"{allowScheduling: true}"})
			f.add(t, "/api/v1/nodes/w-01", "kind: Node")
			if tt.replica != "" {
				f.add(t, longhornAPI+"replicas/a-1", tt.replica)
			}
			if tt.other != "" {
				f.add(t, longhornAPI+"replicas/a-2", tt.other)
			}
			refused := "DELETE " + longhornAPI + "nodes/w-01"
			f.answers[refused] = failure(422, metav1.StatusReasonInvalid, "could not delete node w-01 with "+
				"node ready condition is True")
			f.once[refused] = true
			if err := DeleteNode(t.Context(), target, "w-01"); err != nil {
				t.Error(err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, at := range []string{"/api/v1/nodes/w-01", longhornAPI + "nodes/w-01"} {
				if _, there := f.objects[at]; there != (at == tt.left) {
					t.Errorf("%s is there: %v", at, there)
				}
			}
			if _, there := f.objects[longhornAPI+"replicas/a-1"]; there != (tt.left != "") {
				t.Errorf("the replica is there: %v", there)
			}
			if _, there := f.objects[longhornAPI+"replicas/a-2"]; there != (tt.other != "") {
				t.Error("the replica on another machine was deleted")
			}
		})
	}
}

func TestReplicasOfFormerDisksAreDroppedWhereAnotherIsIntact(t *testing.T) {
	f, target := newLonghorn(t, map[string]string{
		"replicas/a-1": intactReplica("a", "w-01"), "replicas/a-2": intactReplica("a", "w-02"),
		"replicas/b-1": intactReplica("b", "w-01"), "replicas/b-2": failedReplica("b", "w-02"),
	})
	dropped, stay, err := DropReplicas(t.Context(), target, "w-01")
	if err != nil || !slices.Equal(dropped, []string{"a"}) || !slices.Equal(stay, []string{"b"}) {
		t.Errorf("dropped %v, stay %v, %v", dropped, stay, err)
	}
	deleted := slices.DeleteFunc(slices.Clone(f.asked), func(asked string) bool {
		return !strings.HasPrefix(asked, "DELETE ")
	})
	if want := []string{"DELETE " + longhornAPI + "replicas/a-1"}; !slices.Equal(deleted, want) {
		t.Errorf("%v, want %v", deleted, want)
	}
}

func TestStaleLeasesAreThoseThatNobodyHasRenewed(t *testing.T) {
	f := newFakeAPI(t)
	f.serves("coordination.k8s.io/v1", "Lease", "leases", true)
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
	f.add(t, leases+"former", "spec: {holderIdentity: gone, renewTime: '2026-01-01T00:00:00.000000Z'}")
	f.add(t, leases+"held", "spec: {holderIdentity: here, renewTime: '2026-01-03T00:00:00.000000Z'}")
	f.add(t, leases+"unused", "spec: {}")
	since := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	got, err := StaleLeases(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()}, since)
	if err != nil || !slices.Equal(got, []string{"kube-system/former"}) {
		t.Errorf("got %v, %v", got, err)
	}
}

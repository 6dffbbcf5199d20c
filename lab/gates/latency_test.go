package gates_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// These tests measure the time from a condition that holds in the API to the gate that opens. The
// clock runs from the response to the write that made the condition true until Wait returns. The
// status watcher of fluxcd/cli-utils, which Helm 4 uses to wait, awaits the same change, so that
// both run under the same load.
const (
	changes = 200
	lanes   = 6 // changes at a time, as in a cluster that rises
	bound   = 250 * time.Millisecond
)

func TestGatesOpenWithinAQuarterOfASecond(t *testing.T) {
	castle, peer := measure(t)
	t.Logf("castle:    %s", castle)
	t.Logf("cli-utils: %s", peer)
	t.Logf("ratio of castle to cli-utils: p50 %.2f, p95 %.2f", castle.ratio(peer, 50), castle.ratio(peer, 95))
	if p95 := castle.percentile(95); p95 >= bound {
		t.Errorf("of %d gates, 95 in a hundred opened within %s, want less than %s", len(castle), p95, bound)
	}
}

func BenchmarkGatesOpen(b *testing.B) {
	var castle, peer latencies
	for b.Loop() {
		ours, theirs := measure(b)
		castle, peer = append(castle, ours...), append(peer, theirs...)
	}
	b.ReportMetric(0, "ns/op") // the pauses between the changes are no result
	for name, all := range map[string]latencies{"castle": castle, "cli-utils": peer} {
		b.ReportMetric(milliseconds(all.percentile(50)), name+"-p50-ms")
		b.ReportMetric(milliseconds(all.percentile(95)), name+"-p95-ms")
		b.ReportMetric(milliseconds(all.percentile(100)), name+"-max-ms")
	}
	b.ReportMetric(castle.ratio(peer, 95), "p95-ratio")
}

type latencies []time.Duration

// percentile is the time within which so many in a hundred had opened.
func (l latencies) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(l))
	return sorted[(len(sorted)*p+99)/100-1]
}

func (l latencies) ratio(other latencies, p int) float64 {
	return float64(l.percentile(p)) / float64(other.percentile(p))
}

func (l latencies) String() string {
	return fmt.Sprintf("%d changes: p50 %.1f ms, p95 %.1f ms, max %.1f ms", len(l),
		milliseconds(l.percentile(50)), milliseconds(l.percentile(95)), milliseconds(l.percentile(100)))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measure makes all changes and returns the latencies of castle and its peer.
func measure(t testing.TB) (castle, peer latencies) {
	t.Helper()
	p := control(t)
	p.create(t, "", probes)
	namespace := p.namespace(t)
	becomes(t, p.gate(t, "condition", args{"kind": text("LatencyProbe"), "namespace": text(namespace)}),
		"no LatencyProbe in namespace "+namespace+" exists yet")
	unthrottled := rest.CopyConfig(p.cluster.REST)
	unthrottled.QPS = -1
	client, err := dynamic.NewForConfig(unthrottled)
	check(t, err)
	// The peer starts where a running Helm stands: it knows the kind.
	_, err = p.mapper.find(schema.GroupVersionKind{Group: "castle.test", Version: "v1", Kind: "LatencyProbe"})
	check(t, err)

	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for lane := range lanes {
		all.Go(func() {
			chance := rand.New(rand.NewPCG(3, uint64(lane)))
			for i := lane; i < changes; i += lanes {
				c := change{
					name: fmt.Sprintf("probe-%d", i), namespace: namespace, client: client,
					peer: awaiting{client, p.mapper},
					// While the watches begin, or when they are long at rest.
					pause: time.Duration(chance.Int64N(int64(400 * time.Millisecond))),
				}
				c.gate = p.gate(t, "condition",
					args{"api_version": text("castle.test/v1"), "kind": text("LatencyProbe"),
						"namespace": text(namespace), "name": text(c.name)})
				ours, theirs, err := c.make(t.Context())
				mu.Lock()
				castle, peer, errs = append(castle, ours), append(peer, theirs), append(errs, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	check(t, errors.Join(errs...))
	return castle, peer
}

const probes = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: latencyprobes.castle.test}
spec:
  group: castle.test
  scope: Namespaced
  names: {kind: LatencyProbe, plural: latencyprobes, singular: latencyprobe}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// change is one object that becomes ready while two wait for it.
type change struct {
	name, namespace string
	client          dynamic.Interface
	gate            gate.Gate
	peer            awaiting
	pause           time.Duration
}

func (c change) make(ctx context.Context) (castle, peer time.Duration, err error) {
	at := c.client.Resource(schema.GroupVersionResource{Group: "castle.test", Version: "v1",
		Resource: "latencyprobes"}).Namespace(c.namespace)
	object, err := at.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "castle.test/v1", "kind": "LatencyProbe", "metadata": map[string]any{"name": c.name},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, 0, err
	}
	if object, err = at.UpdateStatus(ctx, ready(object, "False"), metav1.UpdateOptions{}); err != nil {
		return 0, 0, err
	}
	var (
		waiting  sync.WaitGroup
		ours     ended
		theirs   ended
		closed   = make(chan struct{})
		watching = make(chan struct{})
	)
	waiting.Go(func() {
		err := gate.Wait(ctx, c.gate, gate.Policy{Timeout: time.Minute},
			gate.Listener{Answer: func(err error) {
				if err != nil {
					close(closed)
				}
			}})
		ours = ended{time.Now(), err}
	})
	waiting.Go(func() {
		err := c.peer.await(ctx, object, watching)
		theirs = ended{time.Now(), err}
	})
	<-closed
	<-watching
	<-time.After(c.pause) // the load: both wait already
	if _, err = at.UpdateStatus(ctx, ready(object, "True"), metav1.UpdateOptions{}); err != nil {
		return 0, 0, err
	}
	holds := time.Now()
	waiting.Wait()
	err = errors.Join(ours.err, theirs.err, at.Delete(ctx, c.name, metav1.DeleteOptions{}))
	return max(0, ours.at.Sub(holds)), max(0, theirs.at.Sub(holds)), err
}

// ended holds the time and the result of the end of a wait.
type ended struct {
	at  time.Time
	err error
}

func ready(object *unstructured.Unstructured, status string) *unstructured.Unstructured {
	object = object.DeepCopy()
	object.Object["status"] = map[string]any{
		"observedGeneration": object.GetGeneration(),
		"conditions":         []any{map[string]any{"type": "Ready", "status": status, "reason": "Measured"}},
	}
	return object
}

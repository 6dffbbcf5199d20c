package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func lookAtService(v gate.Values) string {
	return describe("Service", v.String("namespace"), v.String("service"))
}

// endpoints explains a Service that leads nowhere.
func (q *inquiry) endpoints(ctx context.Context, v gate.Values) {
	q.service(ctx, v.String("namespace"), v.String("service"))
}

// way is where a Service leads: to Pods with these labels, one of which is ready.
type way struct {
	selector string
	leads    bool
}

// service explains a Service: its slices, the Pods that it picks, and what made them.
func (q *inquiry) service(ctx context.Context, namespace, name string) way {
	object, sure := q.get(ctx, selection{in: corev1.SchemeGroupVersion.WithResource("services"), namespace: namespace, name: name}, "Service")
	if object == nil {
		if sure {
			q.absent(ctx, "Service", namespace, name, unmade)
		}
		return way{}
	}
	q.list(ctx, slicesOf(namespace, name), "EndpointSlice")
	q.events(ctx, namespace)
	w := way{leads: q.a.leadsSomewhere(ctx, namespace, name) == nil}
	service, err := as[corev1.Service](*object)
	if err != nil || len(service.Spec.Selector) == 0 {
		q.because(title(object) + " has no selector: whoever made it has to make its endpoints too")
		return w
	}
	w.selector = labels.SelectorFromSet(service.Spec.Selector).String()
	if pods := q.pods(ctx, namespace, w.selector); len(pods) == 0 {
		q.makers(ctx, namespace, w.selector)
		q.because(fmt.Sprintf("no Pod has the labels that %s picks: %s", title(object), w.selector))
	}
	return w
}

// makers explains the workloads whose Pods would have some labels and are not there.
func (q *inquiry) makers(ctx context.Context, namespace, selector string) {
	wanted, err := labels.Parse(selector)
	if err != nil {
		return
	}
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet"} {
		in, _ := workloadResource(kind)
		objects, err := q.a.list(ctx, in, namespace, "")
		if err != nil {
			q.miss(kind+"s", err)
			continue
		}
		for i := range objects {
			if wanted.Matches(templateLabels(&objects[i])) {
				q.workload(ctx, selection{in: in, namespace: namespace, name: objects[i].GetName()}, kind)
			}
		}
	}
}

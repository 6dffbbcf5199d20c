package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// recent is how old a warning may be to explain what fails now.
const recent = 30 * time.Minute

// Survey looks round in a whole cluster, for whoever only knows that something
// went wrong in it: its nodes, the Pods that are in trouble, recent warnings, and
// namespaces that do not go away.
func Survey(ctx context.Context, target gate.Target) gate.Diagnosis {
	return newCluster(target, "").diagnose("kubectl get events -A --field-selector type=Warning --sort-by .lastTimestamp", func(ctx context.Context, q *inquiry) {
		warnings := slices.DeleteFunc(slices.Clone(q.events(ctx, "")), func(e happening) bool {
			return !e.warning || time.Since(e.at) > recent
		})
		q.keep("warnings.txt", written(warnings))
		q.terminating(ctx)
		q.somePods(ctx, "", "", func(pod corev1.Pod) bool { return !podReady(pod) })
		for _, node := range q.nodes(ctx) {
			if why := nodeUnready(node); why != "" {
				q.because(fmt.Sprintf("node %s says of itself: %s", node.Name, why), describe("Node", "", node.Name))
			}
		}
	})(ctx)
}

// terminating explains namespaces that are being deleted and stay.
func (q *inquiry) terminating(ctx context.Context) {
	spaces, err := q.a.list(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), "", "")
	if err != nil {
		q.miss("namespaces", err)
	}
	for i := range spaces {
		if spaces[i].GetDeletionTimestamp() == nil {
			continue
		}
		spaces[i].SetKind("Namespace") // some lists leave it out
		q.object(&spaces[i])
		var why []string
		for _, kind := range []string{"NamespaceDeletionDiscoveryFailure", "NamespaceFinalizersRemaining", "NamespaceContentRemaining"} {
			if s, found := stateOf(&spaces[i], kind); found && s.Status == "True" {
				why = append(why, brief(s.Message))
			}
		}
		if len(why) > 0 {
			q.because(fmt.Sprintf("namespace %s is being deleted and cannot end: %s", spaces[i].GetName(), strings.Join(why, "; ")),
				describe("Namespace", "", spaces[i].GetName()))
		}
	}
}

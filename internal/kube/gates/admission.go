package gates

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// dryRun creates an object in a dry run: the API server admits it as it would for real, and stores nothing.
// It waits for its webhooks. A shorter bound than the attempt's tells a webhook that hangs from an API that
// hangs.
func dryRun(ctx context.Context, a *client.API, in client.Selection, object *client.Object,
	what string) error {
	within := client.DefaultAttempt
	if end, ok := ctx.Deadline(); ok {
		within = time.Until(end) * 3 / 4
	}
	bounded, stop := context.WithTimeout(ctx, within)
	defer stop()
	_, err := a.Dynamic.Resource(in.Resource).Namespace(in.Namespace).Create(bounded, object,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "castle"})
	if bounded.Err() != nil && ctx.Err() == nil {
		return problem(WebhookHangs, what, "no answer within %s: one of its webhooks hangs",
			within.Round(time.Second/2))
	}
	return err
}

// checkAdmission requires that the API server admits a new Pod of a workload. Pods that run hide for weeks
// that a quota, the namespace's Pod Security level or somebody else's webhook refuses the next one.
func checkAdmission(ctx context.Context, a *client.API, workload *client.Object) error {
	in := workload.GetNamespace()
	what := "namespace " + in // the same for all of its workloads, because they usually have one cause
	pods := client.Selection{Resource: client.Core("pods"), Namespace: in}
	err := dryRun(ctx, a, pods, podOf(workload), what)
	switch answer := client.Message(err); {
	case answer == "", client.LacksPermission(err):
		return err
	case strings.Contains(answer, "exceeded quota: "):
		return checkQuotas(ctx, a, in)
	default:
		return &gate.Finding{Kind: PodRefused, Object: what, Unwatched: true, Err: err,
			Text: "the API refuses a new Pod: " + client.Brief(answer)}
	}
}

// podOf is a Pod as a workload's controller would create it. Its name is always the same, for equal answers.
func podOf(workload *client.Object) *client.Object {
	template, _, _ := unstructured.NestedMap(workload.Object, "spec", "template")
	if template == nil {
		template = map[string]any{}
	}
	pod, controller := &client.Object{Object: template}, true
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetNamespace(workload.GetNamespace())
	pod.SetName(workload.GetName() + "-castle")
	pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: workload.GetAPIVersion(),
		Kind: workload.GetKind(), Name: workload.GetName(), UID: workload.GetUID(), Controller: &controller}})
	claims, _, _ := unstructured.NestedSlice(workload.Object, "spec", "volumeClaimTemplates")
	volumes, _, _ := unstructured.NestedSlice(template, "spec", "volumes")
	for _, entry := range claims {
		fields, _ := entry.(map[string]any)
		name, _, _ := unstructured.NestedString(fields, "metadata", "name")
		volumes = append(volumes, map[string]any{"name": name,
			"persistentVolumeClaim": map[string]any{"claimName": name}})
	}
	if spec, ok := template["spec"].(map[string]any); ok && len(claims) > 0 {
		spec["volumes"] = volumes
	}
	return pod
}

// checkQuotas finds the quota that lets no Pod be replaced: one that is below what is used. A quota that is
// just used up refuses a further Pod, but not the one in the place of another.
func checkQuotas(ctx context.Context, a *client.API, namespace string) error {
	quotas, err := client.ListAs[corev1.ResourceQuota](ctx, a,
		client.Selection{Resource: client.Core("resourcequotas"), Namespace: namespace}, "ResourceQuota")
	if err != nil {
		return err
	}
	var closed []*gate.Finding
	for _, quota := range quotas {
		for resource, most := range quota.Status.Hard {
			if used := quota.Status.Used[resource]; used.Cmp(most) > 0 {
				closed = append(closed, problem(QuotaBelowUse,
					client.Titled("resourcequota", namespace, quota.Name),
					"allows %s %s, and %s are in use", &most, resource, &used))
			}
		}
	}
	return together(closed)
}

package drain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/gen/xslices"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// podsOn lists the Pods of a node that a drain evicts, by name.
func podsOn(ctx context.Context, a *client.API, node string) (pods []corev1.Pod, err error) {
	found, err := a.Dynamic.Resource(client.Core("pods")).List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	for _, object := range found.Items {
		p, err := client.As[corev1.Pod](object)
		if err != nil {
			return nil, err
		}
		_, isStatic := p.Annotations[corev1.MirrorPodAnnotationKey]
		owner := metav1.GetControllerOf(&p)
		stays := isStatic || owner != nil && owner.Kind == "DaemonSet" ||
			p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !stays {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

func title(p corev1.Pod) string { return "Pod " + p.Namespace + "/" + p.Name }

// unmanaged are the Pods that no controller starts again elsewhere.
func unmanaged(pods []corev1.Pod) (titles []string) {
	for _, p := range pods {
		if metav1.GetControllerOf(&p) == nil && p.DeletionTimestamp == nil {
			titles = append(titles, title(p))
		}
	}
	return titles
}

// protected reports whether Longhorn deletes the budget of a Pod itself. The Pod runs the node's volumes, and
// Longhorn releases it once the cordoned node needs it no more.
func protected(p corev1.Pod) bool { return p.Labels["longhorn.io/component"] == "instance-manager" }

type budget struct {
	policyv1.PodDisruptionBudget
	pods labels.Selector
}

func listBudgets(ctx context.Context, a *client.API) (all []budget, err error) {
	found, err := client.ListAs[policyv1.PodDisruptionBudget](ctx, a, client.Selection{
		Resource: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")}, "PodDisruptionBudget")
	for _, one := range found {
		pods, err := metav1.LabelSelectorAsSelector(one.Spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("poddisruptionbudget %s/%s: %w", one.Namespace, one.Name, err)
		}
		all = append(all, budget{one, pods})
	}
	return all, err
}

// budgetsOf returns the budgets that hold for a Pod.
func budgetsOf(p corev1.Pod, all []budget) []budget {
	return xslices.Filter(all, func(one budget) bool {
		return one.Namespace == p.Namespace && one.pods.Matches(labels.Set(p.Labels))
	})
}

func names(budgets []budget) string {
	all := xslices.Map(budgets, func(one budget) string { return one.Name })
	slices.Sort(all)
	return strings.Join(all, " and ")
}

// evictAll evicts Pods that are not leaving yet. isProtected reports whether Longhorn protects one of them.
func evictAll(ctx context.Context, a *client.API, pods []corev1.Pod, budgets []budget) (
	waits []wait, isProtected bool, err error) {
	waits = make([]wait, len(pods))
	errs := make(chan error, len(pods))
	var all sync.WaitGroup
	for i, p := range pods {
		waits[i] = wait{title(p) + " terminates", true}
		if left := p.DeletionTimestamp; left != nil {
			if time.Since(left.Time) > overdue {
				waits[i] = wait{fmt.Sprintf("waits for %s: it should have ended at %s, and the kubelet has "+
					"not reported it", title(p), left.UTC().Format(time.RFC3339)), false}
			}
			continue
		}
		all.Go(func() {
			switch refused := evict(ctx, a, p); {
			case refused == nil, apierrors.IsNotFound(refused), apierrors.IsConflict(refused): // it leaves
			case client.Message(refused) == "", client.LacksPermission(refused): // else it has answered
				errs <- refused
			default:
				reason := refusal(refused, p, budgetsOf(p, budgets))
				waits[i] = wait{"waits for " + title(p) + ": " + reason, reason == ""}
			}
		})
	}
	all.Wait()
	close(errs)
	for i, p := range pods {
		isProtected = isProtected || protected(p) && !waits[i].usual
	}
	return waits, isProtected, <-errs
}

// overdue is how long after the end of its grace period a Pod may be there: its machine's clock is another.
const overdue = 10 * time.Second

// evict asks for the eviction of a Pod, once. The client would repeat a refusal by itself.
func evict(ctx context.Context, a *client.API, p corev1.Pod) error {
	body, err := json.Marshal(policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	})
	if err != nil {
		return err
	}
	return a.Raw.Post().AbsPath("/api/v1/namespaces", p.Namespace, "pods", p.Name, "eviction").
		SetHeader("Content-Type", "application/json").MaxRetries(0).Body(body).Do(ctx).Error()
}

// refusal explains why a Pod with these budgets was not evicted; empty if that passes in a moment.
func refusal(err error, p corev1.Pod, own []budget) string {
	switch {
	case len(own) == 1 && protected(p):
		return "Longhorn releases it once no volume is attached to the node and other nodes have the data"
	case len(own) > 1:
		return fmt.Sprintf("Kubernetes evicts no Pod with two PodDisruptionBudgets (%s)", names(own))
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) && len(own) == 1:
		return fmt.Sprintf("its PodDisruptionBudget %s allows no disruption now", own[0].Name)
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err),
		apierrors.IsServerTimeout(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ""
	}
	return "its eviction was refused: " + client.Brief(client.Message(err))
}

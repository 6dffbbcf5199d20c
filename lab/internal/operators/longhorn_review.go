package operators

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// review looks at nodes, and at recurring jobs, which anybody may make without making a volume. Everything
// else passes.
func (l *longhorn) review(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	switch {
	case r.Resource.Resource == "nodes" && r.Operation == admissionv1.Delete:
		return l.reviewDeletion(ctx, r)
	case r.Resource.Resource == "nodes":
		return reviewNode(r)
	case r.Resource.Resource == "recurringjobs" && r.Operation != admissionv1.Delete:
		return reviewJob(r)
	}
	return nil
}

// reviewNode refuses an eviction from a node that takes replicas (webhook/resources/node/validator.go).
func reviewNode(r *admissionv1.AdmissionRequest) error {
	var node struct {
		Spec struct{ AllowScheduling, EvictionRequested bool }
	}
	if err := json.Unmarshal(r.Object.Raw, &node); err != nil {
		return err
	}
	if node.Spec.EvictionRequested && node.Spec.AllowScheduling {
		return invalid(fmt.Sprintf("need to disable scheduling on node %v for node eviction, or cancel "+
			"eviction to enable scheduling on this node", r.Name))
	}
	return nil
}

// reviewDeletion refuses to delete a node that is still in the cluster or holds anything.
func (l *longhorn) reviewDeletion(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	var node unstructured.Unstructured
	if err := json.Unmarshal(r.OldObject.Raw, &node.Object); err != nil {
		return err
	}
	counts := map[string]int{}
	for _, plural := range []string{"replicas", "engines"} {
		all, err := l.w.List(ctx, longhornKind(plural), r.Namespace)
		if err != nil {
			return err
		}
		for _, one := range all {
			if cluster.Text(one.Object, "spec", "nodeID") == r.Name {
				counts[plural]++
			}
		}
	}
	takes, _, err := unstructured.NestedBool(node.Object, "spec", "allowScheduling")
	is, why := cluster.ConditionOf(node.Object, "Ready"), cluster.OfCondition(node.Object, "Ready", "reason")
	gone := is != "True" && (why == "KubernetesNodeGone" || why == "ManagerPodMissing")
	if gone && !takes && counts["replicas"]+counts["engines"] == 0 {
		return err
	}
	return invalid(fmt.Sprintf("could not delete node %v with node ready condition is %v, reason is %v, "+
		"node schedulable %v, and %v replica, %v engine running on it", r.Name, is, why, takes,
		counts["replicas"], counts["engines"]))
}

func reviewJob(r *admissionv1.AdmissionRequest) error {
	var job struct {
		Spec struct{ Task, Cron string }
	}
	if err := json.Unmarshal(r.Object.Raw, &job); err != nil {
		return err
	}
	tasks := []string{"snapshot", "snapshot-force-create", "snapshot-cleanup", "snapshot-delete", "backup",
		"backup-force-create", "filesystem-trim", "system-backup"}
	fields := strings.Fields(job.Spec.Cron)
	switch {
	case job.Spec.Cron == "" || job.Spec.Task == "":
		return invalid("invalid job " + r.Name)
	case !slices.Contains(tasks, job.Spec.Task):
		return invalid(fmt.Sprintf("recurring job task %s is not valid", job.Spec.Task))
	case len(fields) != 5 && !strings.HasPrefix(job.Spec.Cron, "@"):
		return invalid(fmt.Sprintf("invalid cron format(%s): expected exactly 5 fields, found %d: %v",
			job.Spec.Cron, len(fields), fields))
	}
	return nil
}

// invalid returns Longhorn's form of a rejection, which has a reason other than "forbidden".
func invalid(why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Message: why, Reason: metav1.StatusReasonInvalid,
		Code: http.StatusUnprocessableEntity,
	}}
}

package operators

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/volumes"
)

// review looks at nodes, at recurring jobs, which anybody may make without making a volume, and at volumes
// and their backups. Everything else passes.
func (l *longhorn) review(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	switch {
	case r.Resource.Resource == "nodes" && r.Operation == admissionv1.Delete:
		return l.reviewDeletion(ctx, r)
	case r.Resource.Resource == "nodes":
		return reviewNode(r)
	case r.Resource.Resource == "recurringjobs" && r.Operation != admissionv1.Delete:
		return reviewJob(r)
	}
	return l.volumes.Validate(ctx, r)
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
		return volumes.Invalid("need to disable scheduling on node %v for node eviction, or cancel "+
			"eviction to enable scheduling on this node", r.Name)
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
	return volumes.Invalid("could not delete node %v with node ready condition is %v, reason is %v, "+
		"node schedulable %v, and %v replica, %v engine running on it", r.Name, is, why, takes,
		counts["replicas"], counts["engines"])
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
		return volumes.Invalid("invalid job %s", r.Name)
	case !slices.Contains(tasks, job.Spec.Task):
		return volumes.Invalid("recurring job task %s is not valid", job.Spec.Task)
	case len(fields) != 5 && !strings.HasPrefix(job.Spec.Cron, "@"):
		return volumes.Invalid("invalid cron format(%s): expected exactly 5 fields, found %d: %v",
			job.Spec.Cron, len(fields), fields)
	}
	return nil
}

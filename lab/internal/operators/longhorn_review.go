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
)

// reviewLonghorn looks at recurring jobs, which anybody may make without making
// a volume. Everything else passes.
func reviewLonghorn(_ context.Context, r *admissionv1.AdmissionRequest) error {
	if r.Resource.Resource != "recurringjobs" || r.Operation == admissionv1.Delete {
		return nil
	}
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

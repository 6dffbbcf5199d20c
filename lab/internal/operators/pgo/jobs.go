package pgo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// work is a program that takes longer than a look may.
type work struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// run has something done in the background, unless it is under way, and reports when it has ended, once.
func (p *PGO) run(ctx context.Context, key string, do func(context.Context) error) (ended bool, err error) {
	w := p.works[key]
	if w == nil {
		ctx, cancel := context.WithCancel(ctx)
		w = &work{cancel: cancel, done: make(chan struct{})}
		p.works[key] = w
		p.all.Go(func() {
			defer close(w.done)
			defer cancel()
			w.err = do(ctx)
		})
	}
	select {
	case <-w.done:
		delete(p.works, key)
		return true, w.err
	default:
		return false, nil
	}
}

const removing = "remove "

// remove ends a database whose PostgresCluster is gone, as its Pods end, and deletes its data.
func (p *PGO) remove(ctx context.Context, uid types.UID, d *database) {
	var others []*work
	for key, w := range p.works {
		if strings.HasPrefix(key, string(uid)) {
			w.cancel()
			others = append(others, w)
			delete(p.works, key)
		}
	}
	//nolint:errcheck // removed has the error
	p.run(ctx, removing+string(uid), func(ctx context.Context) error {
		for _, w := range others {
			<-w.done
		}
		var err error
		if d != nil {
			err = d.server.Shutdown()
			if d.backups != nil {
				err = errors.Join(err, d.backups.Stop(ctx))
			}
		}
		return errors.Join(err, os.RemoveAll(p.folder(uid)))
	})
}

// removing reports whether a database is about to end.
func (p *PGO) removing() bool {
	for key := range p.works {
		if strings.HasPrefix(key, removing) {
			return true
		}
	}
	return false
}

// removed collects the errors of databases that have ended.
func (p *PGO) removed(ctx context.Context) (errs []error) {
	for key := range p.works {
		if strings.HasPrefix(key, removing) {
			_, err := p.run(ctx, key, nil)
			errs = append(errs, err)
		}
	}
	return errs
}

// job is a Job of PGO. The lab runs its container itself, because no kubelet would.
type job struct {
	name                string
	labels, annotations map[string]string
	command             []string
	do                  func(context.Context) error
}

// manager keeps the Job controller away from these Jobs.
const manager = "castle.lab/pgo"

// mostRetries and firstRetry are the Job controller's own.
const (
	mostRetries = 6
	firstRetry  = 10 * time.Second
)

// found is the newest Job with the labels; nil if there is none.
func (p *PGO) found(ctx context.Context, c *unstructured.Unstructured,
	with map[string]string) (*batchv1.Job, error) {
	all, err := p.w.Typed.BatchV1().Jobs(c.GetNamespace()).List(ctx,
		metav1.ListOptions{LabelSelector: labels.FormatLabels(with)})
	if err != nil {
		return nil, err
	}
	all.Items = slices.DeleteFunc(all.Items, func(j batchv1.Job) bool {
		return j.DeletionTimestamp != nil || !metav1.IsControlledBy(&j, c)
	})
	if len(all.Items) == 0 {
		return nil, nil
	}
	slices.SortFunc(all.Items, func(a, b batchv1.Job) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return &all.Items[0], nil
}

// follow creates a Job if there is none yet, runs its container until that succeeds or has failed too often,
// and keeps the Job's status.
func (p *PGO) follow(ctx context.Context, c *unstructured.Unstructured, there *batchv1.Job,
	j job) (*batchv1.Job, error) {
	jobs := p.w.Typed.BatchV1().Jobs(c.GetNamespace())
	if there == nil {
		made, err := jobs.Create(ctx, j.object(c), metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		made.Status.StartTime, made.Status.Active = new(metav1.NewTime(p.w.Now())), 1
		return jobs.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	}
	step := fmt.Sprintf("%s job %s %d", c.GetUID(), there.Name, there.Status.Failed)
	if succeeded(there) || failed(there) ||
		there.Status.Failed > 0 && !p.w.Passed(step, firstRetry<<(there.Status.Failed-1)) {
		return there, nil
	}
	ended, err := p.run(ctx, step, j.do)
	if !ended {
		return there, nil
	}
	s := &there.Status
	now := metav1.NewTime(p.w.Now())
	is := func(types ...batchv1.JobConditionType) {
		for _, typ := range types {
			s.Conditions = append(s.Conditions, batchv1.JobCondition{Type: typ, Status: corev1.ConditionTrue,
				LastTransitionTime: now, LastProbeTime: now})
		}
	}
	switch {
	case err == nil:
		s.Active, s.Succeeded, s.CompletionTime = 0, 1, &now
		is(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	default:
		p.warn(ctx, c, "JobPodFailed", "Job "+there.Name+": "+err.Error())
		if s.Failed++; s.Failed > mostRetries {
			s.Active = 0
			is(batchv1.JobFailureTarget, batchv1.JobFailed)
			last := &s.Conditions[len(s.Conditions)-1]
			last.Reason, last.Message = batchv1.JobReasonBackoffLimitExceeded,
				"Job has reached the specified backoff limit"
		}
	}
	return jobs.UpdateStatus(ctx, there, metav1.UpdateOptions{})
}

// object is the Job as the API has it.
func (j job) object(c *unstructured.Unstructured) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: j.name, Labels: j.labels,
			Annotations:     j.annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, c.GroupVersionKind())}},
		Spec: batchv1.JobSpec{ManagedBy: new(manager), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: j.labels, Annotations: j.annotations},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name:    "pgbackrest",
				Image:   "registry.developers.crunchydata.com/crunchydata/crunchy-pgbackrest",
				Command: j.command,
			}}},
		}},
	}
}

func succeeded(j *batchv1.Job) bool { return jobIs(j, batchv1.JobComplete) }
func failed(j *batchv1.Job) bool    { return jobIs(j, batchv1.JobFailed) }

func jobIs(j *batchv1.Job, typ batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == typ && c.Status == corev1.ConditionTrue
	})
}

// deleteJob deletes a Job that is not needed any more.
func (p *PGO) deleteJob(ctx context.Context, j *batchv1.Job) error {
	err := p.w.Typed.BatchV1().Jobs(j.Namespace).Delete(ctx, j.Name,
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// jobStatus is the status of a Job as PGO shows it in that of the PostgresCluster.
func jobStatus(id string, j *batchv1.Job) map[string]any {
	status := map[string]any{"id": id, "finished": false}
	if j == nil {
		return status
	}
	status["finished"] = succeeded(j) || failed(j)
	for name, n := range map[string]int32{"active": j.Status.Active, "succeeded": j.Status.Succeeded,
		"failed": j.Status.Failed} {
		if n != 0 {
			status[name] = int64(n)
		}
	}
	for name, at := range map[string]*metav1.Time{"startTime": j.Status.StartTime,
		"completionTime": j.Status.CompletionTime} {
		if at != nil {
			status[name] = at.UTC().Format(time.RFC3339)
		}
	}
	return status
}

// mostMessage is the limit of the API for the message of an event.
const mostMessage = 1024

// warn creates an event about a PostgresCluster, unless its last one for that reason is the same. The end of
// a long message explains it, because the cause is in the last lines of a program.
func (p *PGO) warn(ctx context.Context, c *unstructured.Unstructured, reason, message string) {
	key := string(c.GetUID()) + " " + reason
	if ctx.Err() != nil || p.warned[key] == message {
		return
	}
	p.warned[key] = message
	message = strings.ToValidUTF8(message[max(0, len(message)-mostMessage):], "")
	//nolint:errcheck // like every recorder of events
	p.w.Warn(ctx, corev1.ObjectReference{APIVersion: c.GetAPIVersion(), Kind: c.GetKind(),
		Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUID()}, fieldManager, reason, message)
}

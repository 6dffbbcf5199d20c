package longhorn

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// driver is Longhorn's name as a storage driver.
const driver = "driver.longhorn.io"

// boundClaim is a PersistentVolumeClaim that is bound to a volume of Longhorn.
type boundClaim struct {
	corev1.PersistentVolumeClaim
	pv     corev1.PersistentVolume
	object client.Object // of pv
	volume string        // its name in Longhorn
}

// claims lists the claims of the namespace that the selector selects. Those of a Pod's own end with the Pod.
func (v *volumes) claims(ctx context.Context, a *client.API) (all []boundClaim, err error) {
	found, err := client.ListAs[corev1.PersistentVolumeClaim](ctx, a, client.Selection{
		Resource: client.Core("persistentvolumeclaims"), Namespace: v.namespace, Labels: v.selector},
		"PersistentVolumeClaim")
	if err != nil {
		return nil, err
	}
	for _, one := range found {
		owner := metav1.GetControllerOf(&one)
		if one.Status.Phase != corev1.ClaimBound || owner != nil && owner.Kind == "Pod" {
			continue
		}
		c := boundClaim{PersistentVolumeClaim: one}
		o, err := a.Get(ctx, client.Selection{Resource: client.Core("persistentvolumes"),
			Name: one.Spec.VolumeName}, "PersistentVolume")
		if err == nil {
			c.object = *o
			c.pv, err = client.As[corev1.PersistentVolume](*o)
		}
		if err != nil {
			return nil, err
		}
		if source := c.pv.Spec.CSI; source != nil && source.Driver == driver {
			c.volume = source.VolumeHandle
			all = append(all, c)
		}
	}
	return all, nil
}

// workload is a kind whose Pods castle can stop, by one field.
type workload struct {
	in    schema.GroupVersionResource
	kind  string
	field string
	off   any
	unset any      // what the field means where it is not set
	pods  []string // the template of its Pods
}

func workloads() []workload {
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	batch := schema.GroupVersion{Group: "batch", Version: "v1"}
	pods := []string{"spec", "template", "spec", "volumes"}
	return []workload{
		{apps.WithResource("deployments"), "Deployment", "replicas", int64(0), int64(1), pods},
		{apps.WithResource("statefulsets"), "StatefulSet", "replicas", int64(0), int64(1), pods},
		{batch.WithResource("cronjobs"), "CronJob", "suspend", true, false,
			append([]string{"spec", "jobTemplate"}, pods...)},
	}
}

// frozenFrom is the annotation of a workload that castle has stopped. Its value is the field's before.
const frozenFrom = "castle.ephemeral/frozen-from"

// each calls do for each Deployment, StatefulSet and CronJob of the namespace, with the value of its field.
func (v *volumes) each(ctx context.Context, a *client.API,
	do func(o *client.Object, w workload, value any) error) error {
	for _, w := range workloads() {
		all, err := a.List(ctx, client.Selection{Resource: w.in, Namespace: v.namespace}, w.kind)
		if err != nil {
			return err
		}
		for _, o := range all {
			value, has, err := unstructured.NestedFieldNoCopy(o.Object, "spec", w.field)
			if !has || err != nil {
				value = w.unset
			}
			if err := do(&o, w, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// stop stops the workloads whose Pods use the claims. It reports whether any of them could write until then.
// It changes none if it cannot stop all.
func (v *volumes) stop(ctx context.Context, a *client.API) (wrote bool, err error) {
	all, err := v.claims(ctx, a)
	if err != nil {
		return false, err
	}
	type running struct {
		object *client.Object
		kind   workload
		value  any
	}
	var due []running
	stoppable := map[types.UID]bool{}
	err = v.each(ctx, a, func(o *client.Object, w workload, value any) error {
		if stoppable[o.GetUID()] = true; value != w.off && uses(o, w, all) {
			due = append(due, running{o, w, value})
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	pods, err := v.users(ctx, a, all)
	if err != nil {
		return false, err
	}
	wrote = len(due)+len(pods) > 0
	if err := v.unstoppable(ctx, a, pods, stoppable); err != nil || len(all) == 0 {
		return wrote, err
	}
	for _, r := range due {
		value, err := json.Marshal(r.value)
		if err == nil {
			err = a.Change(ctx, r.kind.in, r.object, map[string]any{frozenFrom: string(value)},
				map[string]any{r.kind.field: r.kind.off})
		}
		if err != nil {
			return wrote, err
		}
	}
	return wrote, nil
}

// start undoes stop. A workload that somebody has started since keeps what he has set.
func (v *volumes) start(ctx context.Context, a *client.API) error {
	return v.each(ctx, a, func(o *client.Object, w workload, value any) error {
		text, has := o.GetAnnotations()[frozenFrom]
		if !has {
			return nil
		}
		if value == w.off {
			if err := json.Unmarshal([]byte(text), &value); err != nil {
				return fmt.Errorf("%s: annotation %s: %w", client.Title(o), frozenFrom, err)
			}
		}
		return a.Change(ctx, w.in, o, map[string]any{frozenFrom: nil}, map[string]any{w.field: value})
	})
}

// uses reports whether the Pods of a workload use a claim: by its name, or by a StatefulSet's template.
func uses(o *client.Object, w workload, claims []boundClaim) bool {
	of, _, _ := unstructured.NestedSlice(o.Object, w.pods...) //nolint:errcheck // then it has none
	for _, one := range of {
		name, _, _ := unstructured.NestedString(one.(map[string]any), "persistentVolumeClaim", "claimName")
		if slices.ContainsFunc(claims, func(c boundClaim) bool { return c.Name == name }) {
			return true
		}
	}
	templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	return len(templates) > 0 && slices.ContainsFunc(claims, func(c boundClaim) bool {
		for _, one := range templates {
			name, _, _ := unstructured.NestedString(one.(map[string]any), "metadata", "name")
			ordinal, is := strings.CutPrefix(c.Name, name+"-"+o.GetName()+"-")
			if _, err := strconv.Atoi(ordinal); is && err == nil {
				return true
			}
		}
		return false
	})
}

// users lists the Pods that use claims, and have not ended.
func (v *volumes) users(ctx context.Context, a *client.API, of []boundClaim) (using []corev1.Pod, err error) {
	used := func(one corev1.Volume) bool {
		return one.PersistentVolumeClaim != nil && slices.ContainsFunc(of, func(c boundClaim) bool {
			return c.Name == one.PersistentVolumeClaim.ClaimName
		})
	}
	pods, err := client.ListAs[corev1.Pod](ctx, a, client.Selection{Resource: client.Core("pods"),
		Namespace: v.namespace}, "Pod")
	for _, p := range pods {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !ended && slices.ContainsFunc(p.Spec.Volumes, used) {
			using = append(using, p)
		}
	}
	return using, err
}

// unstoppable returns an error that names a Pod which belongs to none of the workloads.
func (v *volumes) unstoppable(ctx context.Context, a *client.API, pods []corev1.Pod,
	stoppable map[types.UID]bool) error {
	if len(pods) == 0 {
		return nil
	}
	between := map[string]schema.GroupVersionResource{ // a workload and its Pods
		"ReplicaSet": {Group: "apps", Version: "v1", Resource: "replicasets"},
		"Job":        {Group: "batch", Version: "v1", Resource: "jobs"},
	}
	for _, p := range pods {
		owner, by := metav1.GetControllerOf(&p), "of no controller"
		if owner == nil {
			owner = &metav1.OwnerReference{}
		} else {
			by = "of " + client.Titled(owner.Kind, "", owner.Name)
		}
		if in, is := between[owner.Kind]; is {
			o, err := a.Get(ctx, client.Selection{Resource: in, Namespace: v.namespace, Name: owner.Name},
				owner.Kind)
			if err != nil && gate.KindOf(err) != gate.NotFound {
				return err
			}
			if o != nil {
				owner = metav1.GetControllerOf(o)
			}
		}
		if owner == nil || !stoppable[owner.UID] {
			return gate.Permanent(fmt.Errorf("pod %s/%s %s uses claims of the data, and castle stops only "+
				"Deployments, StatefulSets and CronJobs: stop it, or leave its claims out (selector)",
				p.Namespace, p.Name, by))
		}
	}
	return nil
}

// stopped returns nil once no Pod uses the claims, and Longhorn has detached their volumes.
func (v *volumes) stopped(ctx context.Context, a *client.API) error {
	all, err := v.claims(ctx, a)
	if err != nil {
		return err
	}
	err = v.each(ctx, a, func(o *client.Object, w workload, value any) error {
		if _, frozen := o.GetAnnotations()[frozenFrom]; frozen && value != w.off {
			return gate.Permanent(fmt.Errorf("%s was started again while castle saves the data: by an "+
				"operator or an autoscaler, which has to be stopped first", client.Title(o)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	pods, err := v.users(ctx, a, all)
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		return waits("pod "+v.namespace+"/"+pods[0].Name, "still uses a claim of the data")
	}
	in, err := listVolumes(ctx, a)
	if err != nil {
		return err
	}
	for _, c := range all {
		if is := in[c.volume]; client.Text(&is, "status", "state") != detached {
			return waits("volume "+c.volume, fmt.Sprintf("(claim %s/%s) is not detached yet", c.Namespace,
				c.Name))
		}
	}
	return nil
}

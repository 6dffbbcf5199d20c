package volumes

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// The lab's Pods run no application. These annotations of a claim stand for one: while a Pod uses the volume,
// what writeText asks for is appended to it, and contentText has all that is in it. Otherwise nothing is
// written, and contentText is absent.
const (
	writeText   = "lab.castle/write"
	contentText = "lab.castle/content"
)

// follows keeps what a volume knows of its PersistentVolume and claim, also of one made by hand
// (kubernetes_pv_controller.go).
func (s *state) follows(v *volume, pvs []corev1.PersistentVolume) {
	of := &v.Status.KubernetesStatus
	for _, pv := range pvs {
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != driver || pv.Spec.CSI.VolumeHandle != v.Name {
			continue
		}
		if of.PVName != pv.Name {
			*of = kubernetesStatus{}
		}
		bound := of.PVStatus == string(corev1.VolumeBound)
		of.PVName, of.PVStatus = pv.Name, string(pv.Status.Phase)
		switch {
		case pv.Spec.ClaimRef != nil && pv.Status.Phase == corev1.VolumeBound:
			of.PVCName, of.Namespace, of.LastPVCRefAt = pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.Namespace, ""
		case of.LastPVCRefAt == "" && of.PVCName != "" && (bound || pv.Spec.ClaimRef == nil):
			of.LastPVCRefAt = s.now()
		}
		return
	}
	if of.PVName != "" { // it was deleted
		of.PVName, of.PVStatus = "", ""
		if of.PVCName != "" && of.LastPVCRefAt == "" {
			of.LastPVCRefAt = s.now()
		}
	}
}

// applications do what the annotations of claims ask for.
func (s *state) applications(ctx context.Context, claims []corev1.PersistentVolumeClaim) error {
	var errs []error
	for _, pvc := range claims {
		_, asks := pvc.Annotations[writeText]
		_, shows := pvc.Annotations[contentText]
		if asks || shows {
			errs = append(errs, cluster.About(pvc.Namespace+"/"+pvc.Name, s.application(ctx, &pvc)))
		}
	}
	return errors.Join(errs...)
}

// application takes the request off the claim before it writes: after a crash it is lost and not done twice.
func (s *state) application(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	var used []*replica
	for _, v := range s.volumes {
		of := v.Status.KubernetesStatus
		user := s.user(v)
		if of.Namespace == pvc.Namespace && of.PVCName == pvc.Name && user != "" &&
			user == v.Status.CurrentNodeID && !v.Status.RestoreRequired {
			used = s.running(v)
		}
	}
	shown, shows := pvc.Annotations[contentText]
	if len(used) == 0 {
		if shows {
			return s.annotate(ctx, pvc, map[string]any{contentText: nil})
		}
		return nil
	}
	if more, asks := pvc.Annotations[writeText]; asks {
		if err := s.annotate(ctx, pvc, map[string]any{writeText: nil}); err != nil {
			return err
		}
		for _, r := range used {
			if err := appendTo(s.contents.head(r), more); err != nil {
				return err
			}
		}
	}
	is, err := text(s.contents.head(used[0]))
	if err != nil || shows && shown == is {
		return err
	}
	pvc.ResourceVersion = ""
	return s.annotate(ctx, pvc, map[string]any{contentText: is})
}

// annotate changes annotations of a claim that nobody has changed since it was read.
func (s *state) annotate(
	ctx context.Context,
	pvc *corev1.PersistentVolumeClaim,
	values map[string]any,
) error {
	meta := map[string]any{"annotations": values}
	if pvc.ResourceVersion != "" {
		meta["resourceVersion"] = pvc.ResourceVersion
	}
	text, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	_, err = s.w.Typed.CoreV1().
		PersistentVolumeClaims(pvc.Namespace).
		Patch(ctx, pvc.Name, types.MergePatchType,
			text, metav1.PatchOptions{})
	return cluster.Unless(err, apierrors.IsNotFound)
}

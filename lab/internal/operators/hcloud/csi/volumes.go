package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// What the volume controller, the scheduler and the provisioner write to a claim and a volume.
const (
	provisioner   = "volume.kubernetes.io/storage-provisioner"
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	finalizer     = "external-provisioner.volume.kubernetes.io/finalizer"
)

func classOf(c corev1.PersistentVolumeClaim) string {
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// provision makes the volumes of claims for which the scheduler has chosen a node.
func (d *Driver) provision(ctx context.Context) error {
	list, err := d.w.Typed.CoreV1().PersistentVolumeClaims("").List(ctx,
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list.Items {
		step := "claim " + string(c.UID)
		if c.Annotations[provisioner] != Name || c.Annotations[selectedNode] == "" ||
			c.Spec.VolumeName != "" || c.DeletionTimestamp != nil || d.failed[step] && !d.due(step) {
			continue
		}
		err := d.make(ctx, c)
		if d.failed[step] = err != nil; err != nil {
			errs = append(errs, d.warn(ctx, c, err))
		}
	}
	return errors.Join(errs...)
}

// make makes a volume in the location of the chosen node.
func (d *Driver) make(ctx context.Context, c corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(c.UID)
	_, err := d.w.Typed.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err // made, and not bound yet
	}
	node, err := d.w.Typed.CoreV1().Nodes().Get(ctx, c.Annotations[selectedNode], metav1.GetOptions{})
	if err != nil {
		return err
	}
	class, err := d.w.Typed.StorageV1().StorageClasses().Get(ctx, classOf(c), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if node.Labels[location] == "" {
		return fmt.Errorf("error generating accessibility requirements: no topology key found on CSINode %s",
			node.Name)
	}
	for i, mode := range c.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return fmt.Errorf("rpc error: code = InvalidArgument desc = capability at index %d is not "+
				"supported", i)
		}
	}
	asked := c.Spec.Resources.Requests[corev1.ResourceStorage]
	size := max(10, int((asked.Value()+(1<<30)-1)>>30))
	labels := map[string]string{"managed-by": "csi-driver"}
	for pair := range strings.SplitSeq(d.env["HCLOUD_VOLUME_EXTRA_LABELS"], ",") {
		if key, value, is := strings.Cut(pair, "="); is {
			labels[key] = value
		}
	}
	maps.Copy(labels, map[string]string{"pvc-name": short(c.Name), "pvc-namespace": c.Namespace,
		"pv-name": name})
	made, _, err := d.client.Volume.Create(ctx, api.VolumeCreateOpts{Name: name, Size: size, Labels: labels,
		Location: &api.Location{Name: node.Labels[location]}})
	var v *api.Volume
	switch {
	case err == nil:
		v, err = made.Volume, d.client.Action.WaitFor(ctx, made.Action)
	case api.IsError(err, api.ErrorCodeUniquenessError):
		v, _, err = d.client.Volume.GetByName(ctx, name)
	}
	if err != nil || v == nil {
		return fmt.Errorf("rpc error: code = Internal desc = failed to create volume: %w", err)
	}
	_, err = d.w.Typed.CoreV1().PersistentVolumes().Create(ctx, volumeOf(c, *class, v),
		metav1.CreateOptions{})
	return cluster.Unless(err, apierrors.IsAlreadyExists)
}

// short is the end of a text that fits into a label.
func short(text string) string { return strings.TrimLeft(text[max(0, len(text)-63):], "-.") }

func volumeOf(c corev1.PersistentVolumeClaim, class storagev1.StorageClass, v *api.Volume,
) *corev1.PersistentVolume {
	in := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: location,
		Operator: corev1.NodeSelectorOpIn, Values: []string{v.Location.Name}}}}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.Name, Annotations: map[string]string{provisionedBy: Name},
			Finalizers: []string{finalizer}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(int64(v.Size)<<30, resource.BinarySI)},
			AccessModes: c.Spec.AccessModes, VolumeMode: c.Spec.VolumeMode, StorageClassName: class.Name,
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy, MountOptions: class.MountOptions,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{in}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: Name, VolumeHandle: strconv.FormatInt(v.ID, 10), FSType: "ext4"}},
		},
	}
}

// attach attaches each volume to the node of the Pod that uses it, once no other node has it, and detaches
// those that no Pod uses. The controller of attachments does not run in the lab: its objects are made here.
func (d *Driver) attach(ctx context.Context) error {
	volumes, err := d.w.Typed.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	handles := map[string]corev1.PersistentVolume{} // by claim
	for _, v := range volumes.Items {
		if v.Spec.CSI != nil && v.Spec.CSI.Driver == Name && v.Spec.ClaimRef != nil {
			handles[v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name] = v
		}
	}
	all, err := d.w.Typed.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil || len(handles) == 0 && len(all.Items) == 0 {
		return err
	}
	pods, err := d.w.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	wanted := map[string]*storagev1.VolumeAttachment{}
	for _, p := range pods.Items {
		for _, used := range p.Spec.Volumes {
			if p.Spec.NodeName == "" || used.PersistentVolumeClaim == nil ||
				p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				continue
			}
			if v, is := handles[p.Namespace+"/"+used.PersistentVolumeClaim.ClaimName]; is {
				a := attachmentOf(v, p.Spec.NodeName)
				wanted[a.Name] = a
			}
		}
	}
	var errs []error
	taken := map[string]bool{}
	for _, a := range all.Items {
		if a.Spec.Attacher != Name {
			continue
		}
		taken[*a.Spec.Source.PersistentVolumeName] = true
		if wanted[a.Name] == nil {
			errs = append(errs, d.unpublish(ctx, a))
		} else if !a.Status.Attached {
			errs = append(errs, d.publish(ctx, a))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if a := wanted[name]; !taken[*a.Spec.Source.PersistentVolumeName] {
			taken[*a.Spec.Source.PersistentVolumeName] = true
			_, err := d.w.Typed.StorageV1().VolumeAttachments().Create(ctx, a, metav1.CreateOptions{})
			errs = append(errs, cluster.Unless(err, apierrors.IsAlreadyExists))
		}
	}
	return errors.Join(errs...)
}

func attachmentOf(v corev1.PersistentVolume, node string) *storagev1.VolumeAttachment {
	sum := sha256.Sum256([]byte(v.Spec.CSI.VolumeHandle + Name + node))
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("csi-%x", sum),
			Annotations: map[string]string{"csi.alpha.kubernetes.io/volume-handle": v.Spec.CSI.VolumeHandle}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: Name, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name}},
	}
}

// volume reads the volume of an attachment, or of a PersistentVolume; nil if it is gone.
func (d *Driver) volume(ctx context.Context, handle string) (*api.Volume, error) {
	id, err := strconv.ParseInt(handle, 10, 64)
	if err != nil {
		return nil, nil //nolint:nilerr // the driver finds no such volume
	}
	v, _, err := d.client.Volume.GetByID(ctx, id)
	return v, err
}

func (d *Driver) publish(ctx context.Context, a storagev1.VolumeAttachment) error {
	v, err := d.volume(ctx, a.Annotations["csi.alpha.kubernetes.io/volume-handle"])
	if err != nil || v == nil {
		return err
	}
	s, _, err := d.client.Server.GetByName(ctx, a.Spec.NodeName)
	if err != nil || s == nil {
		return err
	}
	if v.Server == nil {
		action, _, err := d.client.Volume.Attach(ctx, v, s)
		if err == nil {
			err = d.client.Action.WaitFor(ctx, action)
		}
		if err != nil {
			return err
		}
	} else if v.Server.ID != s.ID {
		return fmt.Errorf("volume %s is attached to server %d", v.Name, v.Server.ID)
	}
	a.Status.Attached = true
	a.Status.AttachmentMetadata = map[string]string{"devicePath": v.LinuxDevice}
	_, err = d.w.Typed.StorageV1().VolumeAttachments().UpdateStatus(ctx, &a, metav1.UpdateOptions{})
	return cluster.Unless(cluster.Unless(err, apierrors.IsNotFound), apierrors.IsConflict)
}

func (d *Driver) unpublish(ctx context.Context, a storagev1.VolumeAttachment) error {
	v, err := d.volume(ctx, a.Annotations["csi.alpha.kubernetes.io/volume-handle"])
	if err != nil {
		return err
	}
	if v != nil && v.Server != nil {
		action, _, err := d.client.Volume.Detach(ctx, v)
		if err == nil {
			err = d.client.Action.WaitFor(ctx, action)
		}
		if err != nil {
			return err
		}
	}
	err = d.w.Typed.StorageV1().VolumeAttachments().Delete(ctx, a.Name, metav1.DeleteOptions{})
	return cluster.Unless(err, apierrors.IsNotFound)
}

// remove deletes the volumes whose claims are gone, if their class says so. One that is attached stays until
// it is not.
func (d *Driver) remove(ctx context.Context) error {
	list, err := d.w.Typed.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range list.Items {
		deletes := p.Status.Phase == corev1.VolumeReleased &&
			p.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
		if p.Annotations[provisionedBy] != Name || !deletes && p.DeletionTimestamp == nil {
			continue
		}
		v, err := d.volume(ctx, p.Spec.CSI.VolumeHandle)
		if err == nil && v != nil && deletes {
			if v.Server != nil {
				continue
			}
			_, err = d.client.Volume.Delete(ctx, v)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, d.finish(ctx, p))
	}
	return errors.Join(errs...)
}

// finish removes a PersistentVolume whose volume is dealt with.
func (d *Driver) finish(ctx context.Context, p corev1.PersistentVolume) error {
	volumes := d.w.Typed.CoreV1().PersistentVolumes()
	p.Finalizers = slices.DeleteFunc(slices.Clone(p.Finalizers),
		func(name string) bool { return name == finalizer })
	_, err := volumes.Update(ctx, &p, metav1.UpdateOptions{})
	if err == nil && p.DeletionTimestamp == nil {
		err = volumes.Delete(ctx, p.Name, metav1.DeleteOptions{})
	}
	return cluster.Unless(cluster.Unless(err, apierrors.IsNotFound), apierrors.IsConflict)
}

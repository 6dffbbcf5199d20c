package volumes

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const (
	driver = "driver.longhorn.io"
	// provisionedBy is the annotation by which Kubernetes asks a driver for the volume of a claim.
	provisionedBy = "volume.kubernetes.io/storage-provisioner"
)

func engineOf(volume string) string { return volume + "-e-0" }

// provision does the work of the CSI provisioner: it makes volumes for claims, and deletes those whose claim
// is gone.
func (s *state) provision(ctx context.Context) error {
	claims, err := s.w.Typed.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, pvc := range claims.Items {
		if pvc.Annotations[provisionedBy] == driver && pvc.Spec.VolumeName == "" &&
			pvc.DeletionTimestamp == nil && pvc.Spec.StorageClassName != nil {
			errs = append(errs, cluster.About(pvc.Namespace+"/"+pvc.Name, s.satisfy(ctx, &pvc)))
		}
	}
	if len(s.volumes) == 0 {
		return errors.Join(errs...)
	}
	errs = append(errs, s.applications(ctx, claims.Items))
	all, err := s.w.Typed.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	s.persistent = all.Items
	for _, pv := range all.Items {
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != driver || pv.Status.Phase != corev1.VolumeReleased ||
			pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		err := s.w.Typed.CoreV1().PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{})
		errs = append(errs, remove(ctx, s.w, "volumes", s.namespace, pv.Spec.CSI.VolumeHandle),
			cluster.Unless(err, apierrors.IsNotFound))
	}
	return errors.Join(errs...)
}

// satisfy makes the volume of a claim, and its PersistentVolume.
func (s *state) satisfy(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	class, err := s.w.Typed.StorageV1().StorageClasses().Get(ctx, *pvc.Spec.StorageClassName,
		metav1.GetOptions{})
	if err != nil {
		return err
	}
	name, size := "pvc-"+string(pvc.UID), pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	copies, err := strconv.ParseInt(class.Parameters["numberOfReplicas"], 10, 64)
	if err != nil {
		copies = 3
	}
	if _, err := s.add(ctx, name, size.Value(), copies); err != nil {
		return err
	}
	reclaim := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	_, err = s.w.Typed.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: size},
			AccessModes: pvc.Spec.AccessModes, PersistentVolumeReclaimPolicy: reclaim,
			StorageClassName: class.Name, VolumeMode: pvc.Spec.VolumeMode,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: name, FSType: "ext4"}},
		},
	}, metav1.CreateOptions{})
	return cluster.Unless(err, apierrors.IsAlreadyExists)
}

// add makes a volume with its engine. Its replicas follow.
func (s *state) add(ctx context.Context, name string, size, copies int64) (*volume, error) {
	v := &volume{TypeMeta: typeOf("Volume"),
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: volumeSpec{Size: strconv.FormatInt(size, 10), Frontend: "blockdev", DataEngine: "v1",
			NumberOfReplicas: copies},
		Status: volumeStatus{State: "detached", Robustness: "unknown"}}
	return v, create(ctx, s.w, "volumes", v)
}

// attach lets a volume follow the Pod that uses its claim; without one it is where somebody has attached it
// by hand, with a ticket of the type longhorn-api. A controller that needs its engine leaves it where it is,
// or has it attached anywhere.
func (s *state) attach(ctx context.Context, v *volume) error {
	at := slices.IndexFunc(s.tickets, func(one *attachment) bool { return one.Name == v.Name })
	if at < 0 {
		return create(ctx, s.w, "volumeattachments", &attachment{TypeMeta: typeOf("VolumeAttachment"),
			ObjectMeta: metav1.ObjectMeta{Name: v.Name, Namespace: s.namespace, OwnerReferences: ownedBy(v)},
			Spec:       attachmentSpec{Volume: v.Name, AttachmentTickets: map[string]ticket{}}})
	}
	tickets := s.tickets[at]
	node, was := "", *tickets
	tickets.Spec.AttachmentTickets = map[string]ticket{}
	for id, one := range was.Spec.AttachmentTickets {
		if !slices.Contains([]string{"csi-attacher", bySnapshot, byBackup, byRestore}, one.Type) {
			tickets.Spec.AttachmentTickets[id] = one
		}
		if one.Type == "longhorn-api" {
			node = one.NodeID
		}
	}
	if user := s.user(v); user != "" {
		tickets.Spec.AttachmentTickets["csi-"+user] = ticket{"csi-" + user, "csi-attacher", user}
		if node = user; v.Status.RestoreRequired { // it waits for the data
			node = ""
		}
	}
	if v.Status.RestoreRequired && v.Status.Robustness != "faulted" {
		s.attaches(v.Name, byRestore, v.Name)
	}
	if wanted := s.wanted[v.Name]; len(wanted) > 0 &&
		!(v.Status.RestoreRequired && v.Status.Robustness == "faulted") {
		if node == "" {
			node = s.anywhere(v)
		}
		for _, one := range wanted {
			one.NodeID = node
			tickets.Spec.AttachmentTickets[one.ID] = one
		}
	}
	current, step := &v.Status.CurrentNodeID, "volume "+v.Name+" "
	switch {
	case node == *current:
		s.w.Restart(step + "attaches")
		s.w.Restart(step + "detaches")
		v.Status.State = map[bool]string{true: "detached", false: "attached"}[node == ""]
	case *current != "":
		if v.Status.State = "detaching"; s.w.Passed(step+"detaches", detaches) {
			*current, v.Status.State = "", "detached"
		}
	case s.host(node).runs():
		if v.Status.State = "attaching"; s.w.Passed(step+"attaches", attaches) {
			*current, v.Status.State = node, "attached"
		}
	}
	v.Spec.NodeID = node
	return save(ctx, s.w, "volumeattachments", &was, tickets)
}

// anywhere is where a controller has a volume attached: where it is, or on a node that runs.
func (s *state) anywhere(v *volume) string {
	if v.Status.CurrentNodeID != "" {
		return v.Status.CurrentNodeID
	}
	for _, h := range s.hosts {
		if h.runs() && !h.cordoned() {
			return h.name()
		}
	}
	return ""
}

// user is the node of the first Pod that uses a volume; "" if none does.
func (s *state) user(v *volume) string {
	of := v.Status.KubernetesStatus
	if of.PVCName == "" || of.LastPVCRefAt != "" {
		return ""
	}
	for _, p := range s.pods {
		for _, one := range p.Spec.Volumes {
			if one.PersistentVolumeClaim != nil && one.PersistentVolumeClaim.ClaimName == of.PVCName &&
				p.Namespace == of.Namespace && p.Spec.NodeName != "" {
				return p.Spec.NodeName
			}
		}
	}
	return ""
}

// engineOf returns the engine of a volume; nil if it is yet to be made.
func (s *state) engineOf(v *volume) *engine {
	for _, e := range s.engines {
		if e.Name == engineOf(v.Name) {
			return e
		}
	}
	return nil
}

// engine keeps the engine of a volume where the volume is attached.
func (s *state) engine(ctx context.Context, v *volume, was, e *engine) error {
	is := "stopped"
	if v.Status.CurrentNodeID != "" {
		is = "running"
	}
	isNew := e == nil
	if isNew {
		e = &engine{TypeMeta: typeOf("Engine"), ObjectMeta: metav1.ObjectMeta{Name: engineOf(v.Name),
			Namespace: s.namespace, OwnerReferences: ownedBy(v)}}
	}
	e.Spec.VolumeName, e.Spec.NodeID, e.Spec.DesireState = v.Name, v.Status.CurrentNodeID, is
	e.Status.CurrentState = is
	if is == "stopped" {
		e.Spec.RequestedBackupRestore = ""
		if !v.Status.RestoreRequired {
			e.Spec.BackupVolume = ""
		}
	}
	if isNew {
		return create(ctx, s.w, "engines", e)
	}
	return save(ctx, s.w, "engines", was, e)
}

// last makes the volume of the fault replica-last: detached, with one replica, on the node that it names.
func (s *state) last(ctx context.Context) error {
	name := s.w.Faults.ReplicaLast
	if name == "" {
		return nil
	}
	for _, v := range s.volumes {
		if v.Name == lastVolume {
			return nil
		}
	}
	for _, h := range s.hosts {
		if h.takes() && (h.name() == name || strings.HasSuffix(h.name(), "-"+name)) {
			s.w.Tell("replica-last", false)
			v, err := s.add(ctx, lastVolume, 1<<30, 1)
			if err == nil {
				err = s.place(ctx, v, h.name(), true)
			}
			s.w.Tell("replica-last", true)
			return err
		}
	}
	return nil
}

const lastVolume = "replica-last"

package operators

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/volumes"
)

const driver = "driver.longhorn.io"

// longhorn is the manager and the driver deployer: nearly all that makes
// Longhorn usable is made by them at run time and belongs to no Helm release.
//
// Its times, and those of the chart, add up to what TazLab published for the layers that run side by side, of
// which storage is the slowest: 115 s ("Eliminating Ansible", June 2026; storage alone 118 s in May). How the
// time divides between images and steps is an estimate.
type longhorn struct {
	w       *cluster.View
	h       *webhook
	volumes *volumes.Volumes
	// made records the objects created since the manager started. Like the manager, it creates no
	// object twice.
	made map[string]bool
	gone bool // after it was here
}

// newLonghorn returns the operator, which keeps the data of volumes below a directory.
func newLonghorn(w *cluster.View, routes Routes, dir string) *longhorn {
	l := &longhorn{w: w, volumes: volumes.New(w, dir), made: map[string]bool{}}
	l.h = &webhook{
		w: w, routes: routes, workload: "longhorn-manager", port: 9502, service: "longhorn-admission-webhook",
		fill: l.configure, certified: 4 * time.Second, listens: 4 * time.Second,
		reviewers: map[string]reviewer{"/v1/webhook/validation": l.review},
		mutators:  map[string]patcher{"/v1/webhook/mutation": l.volumes.Mutate},
		expired:   w.Fault("ca-expired", validator),
	}
	return l
}

func (l *longhorn) Close() {
	l.h.close()
	l.volumes.Close()
}

func (l *longhorn) Look(ctx context.Context) error {
	manager, err := l.w.DaemonSet(ctx, l.h.workload)
	if err != nil {
		return err
	}
	if manager == nil {
		leaves := l.h.namespace != ""
		l.gone = l.gone || leaves
		if err := l.h.look(ctx, ""); err != nil {
			return err
		}
		if !leaves {
			return l.release(ctx)
		}
		l.w.Restart("longhorn volumes")
		l.w.Restart("longhorn disks")
		l.w.Restart("longhorn driver")
		clear(l.made)
		return l.remove(ctx)
	}
	l.gone = false
	if err := l.h.look(ctx, manager.Namespace); err != nil || !l.h.serving() {
		return err
	}
	if err := l.label(ctx, manager.Namespace); err != nil {
		return err
	}
	if !l.w.Passed("longhorn volumes", 5*time.Second) {
		return nil
	}
	if err := errors.Join(l.once("class", func() error { return l.class(ctx, manager.Namespace) }),
		l.engineImage(ctx, manager), l.storage(ctx, manager)); err != nil {
		return err
	}
	deployer, err := l.w.Deployment(ctx, "longhorn-driver-deployer")
	if err != nil || deployer == nil || !l.w.Passed("longhorn driver", 3*time.Second) {
		return err
	}
	return errors.Join(l.once("driver", func() error {
		return l.driver(ctx, manager.Namespace)
	}), l.register(ctx, manager.Namespace))
}

// release lets go what is being deleted, once nobody else will: otherwise its namespace would never end.
func (l *longhorn) release(ctx context.Context) error {
	if !l.gone {
		return nil
	}
	return l.volumes.Release(ctx)
}

// once makes something, unless it was made.
func (l *longhorn) once(what string, do func() error) error {
	if l.made[what] {
		return nil
	}
	err := do()
	l.made[what] = err == nil
	return err
}

// label puts the labels on the manager's Pods by which the Services of the
// webhook and the recovery backend find them.
func (l *longhorn) label(ctx context.Context, namespace string) error {
	pods, err := l.w.Typed.CoreV1().Pods(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app=" + l.h.workload})
	if err != nil {
		return err
	}
	patch := []byte(`{"metadata":{"labels":{"longhorn.io/admission-webhook":"longhorn-admission-webhook",` +
		`"longhorn.io/recovery-backend":"longhorn-recovery-backend"}}}`)
	for _, p := range pods.Items {
		if p.Labels["longhorn.io/admission-webhook"] != "" || !podReady(&p) {
			continue
		}
		if _, err := l.w.Typed.CoreV1().Pods(namespace).Patch(ctx, p.Name, types.StrategicMergePatchType,
			patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// class makes the StorageClass that the chart wrote down in a ConfigMap.
func (l *longhorn) class(ctx context.Context, namespace string) error {
	text, err := l.w.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, "longhorn-storageclass",
		metav1.GetOptions{})
	if err != nil {
		return cluster.Unless(err, apierrors.IsNotFound)
	}
	var class storagev1.StorageClass
	if err := yaml.UnmarshalStrict([]byte(text.Data["storageclass.yaml"]), &class); err != nil {
		return err
	}
	_, err = l.w.Typed.StorageV1().StorageClasses().Create(ctx, &class, metav1.CreateOptions{})
	return cluster.Unless(err, apierrors.IsAlreadyExists)
}

// driver deploys the CSI driver.
func (l *longhorn) driver(ctx context.Context, namespace string) error {
	yes := true
	_, err := l.w.Typed.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{PodInfoOnMount: &yes,
			AttachRequired: &yes},
	}, metav1.CreateOptions{})
	if err := cluster.Unless(err, apierrors.IsAlreadyExists); err != nil {
		return err
	}
	three := int32(3)
	for _, name := range []string{"csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"} {
		_, err := l.w.Typed.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{Replicas: &three, Selector: selector(name),
				Template: l.pod(name, 25*time.Second)},
		}, metav1.CreateOptions{})
		if err := cluster.Unless(err, apierrors.IsAlreadyExists); err != nil {
			return err
		}
	}
	_, err = l.w.Typed.AppsV1().DaemonSets(namespace).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "longhorn-csi-plugin"},
		Spec: appsv1.DaemonSetSpec{Selector: selector("longhorn-csi-plugin"),
			Template: l.pod("longhorn-csi-plugin", 27*time.Second)},
	}, metav1.CreateOptions{})
	return cluster.Unless(err, apierrors.IsAlreadyExists)
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func (l *longhorn) pod(app string, ready time.Duration) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app},
			Annotations: map[string]string{"lab.castle/ready-after": l.w.Delay(ready)}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "longhorn-service-account", PriorityClassName: "longhorn-critical",
			Containers: []corev1.Container{{Name: app, Image: "docker.io/longhornio/" + app}},
		},
	}
}

// register does the kubelet's work once a node's CSI plugin is ready: it adds the driver to the
// node's CSINode, again if that has ended with a node that was made anew.
func (l *longhorn) register(ctx context.Context, namespace string) error {
	pods, err := l.w.Typed.CoreV1().Pods(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app=longhorn-csi-plugin"})
	if err != nil {
		return err
	}
	nodes, err := l.w.Typed.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	registered := map[string]bool{}
	for _, n := range nodes.Items {
		registered[n.Name] = slices.ContainsFunc(n.Spec.Drivers,
			func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	}
	for _, p := range pods.Items {
		if !podReady(&p) || registered[p.Spec.NodeName] {
			continue
		}
		if err := l.w.Register(ctx, p.Spec.NodeName,
			storagev1.CSINodeDriver{Name: driver, NodeID: p.Spec.NodeName}); err != nil {
			return err
		}
	}
	return nil
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

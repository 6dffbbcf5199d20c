package operators

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud/csi"
)

// registrar registers the CSI drivers of charts, as the node-driver-registrar beside each plugin does with
// the kubelet: a driver is on a node where a ready Pod of its release has the kubelet's registration folder.
// Longhorn's makes its plugin itself, and Hetzner Cloud's tells the server and its location, too.
type registrar struct{ w *cluster.View }

func (r *registrar) Close() {}

// release is the Helm release of an object.
func release(o metav1.Object) [2]string {
	return [2]string{o.GetAnnotations()["meta.helm.sh/release-namespace"],
		o.GetAnnotations()["meta.helm.sh/release-name"]}
}

func (r *registrar) Look(ctx context.Context) error {
	drivers, err := r.w.Typed.StorageV1().CSIDrivers().List(ctx, metav1.ListOptions{})
	if err != nil || len(drivers.Items) == 0 {
		return err
	}
	sets, err := r.w.Typed.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range drivers.Items {
		for _, set := range sets.Items {
			if d.Name != csi.Name && release(&d) == release(&set) && release(&d) != [2]string{} &&
				registers(&set) {
				errs = append(errs, r.register(ctx, d.Name, &set))
			}
		}
	}
	return errors.Join(errs...)
}

func registers(set *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && v.HostPath.Path == "/var/lib/kubelet/plugins_registry"
	})
}

func (r *registrar) register(ctx context.Context, driver string, set *appsv1.DaemonSet) error {
	pods, err := r.w.Typed.CoreV1().Pods(set.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods.Items {
		if podReady(&p) {
			errs = append(errs, r.w.Register(ctx, p.Spec.NodeName,
				storagev1.CSINodeDriver{Name: driver, NodeID: p.Spec.NodeName}))
		}
	}
	return errors.Join(errs...)
}

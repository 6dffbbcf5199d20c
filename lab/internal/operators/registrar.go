package operators

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// registrar registers the CSI drivers of charts, as the node-driver-registrar beside each plugin does with
// the kubelet: a driver is on a node where a ready Pod of its release has the kubelet's registration folder.
// Longhorn's makes its plugin itself.
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
			if release(&d) == release(&set) && release(&d) != [2]string{} && registers(&set) {
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
			errs = append(errs, registerDriver(ctx, r.w, driver, p.Spec.NodeName))
		}
	}
	return errors.Join(errs...)
}

// registerDriver adds a driver to a node's CSINode, unless it has it.
func registerDriver(ctx context.Context, w *cluster.View, driver, name string) error {
	entry := storagev1.CSINodeDriver{Name: driver, NodeID: name}
	api := w.Typed.StorageV1().CSINodes()
	have, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err := w.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return cluster.Unless(err, apierrors.IsNotFound)
		}
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
		_, err = api.Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{entry}},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil || slices.ContainsFunc(have.Spec.Drivers,
		func(d storagev1.CSINodeDriver) bool { return d.Name == driver }) {
		return err
	}
	have.Spec.Drivers = append(have.Spec.Drivers, entry)
	_, err = api.Update(ctx, have, metav1.UpdateOptions{})
	return err
}

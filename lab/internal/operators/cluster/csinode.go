package cluster

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Register adds a CSI driver to a node's CSINode, unless it has it.
func (w *View) Register(ctx context.Context, name string, entry storagev1.CSINodeDriver) error {
	api := w.Typed.StorageV1().CSINodes()
	have, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err := w.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return Unless(err, apierrors.IsNotFound)
		}
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
		_, err = api.Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{entry}},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil || slices.ContainsFunc(have.Spec.Drivers,
		func(d storagev1.CSINodeDriver) bool { return d.Name == entry.Name && d.NodeID == entry.NodeID }) {
		return err
	}
	have.Spec.Drivers = append(slices.DeleteFunc(have.Spec.Drivers,
		func(d storagev1.CSINodeDriver) bool { return d.Name == entry.Name }), entry)
	_, err = api.Update(ctx, have, metav1.UpdateOptions{})
	return err
}

package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// storage explains a class whose volumes could not be made or mounted: the
// class, its driver, the nodes that have not registered it, and the Pods that
// should do that.
func (q *inquiry) storage(ctx context.Context, v gate.Values) {
	name := v.String("name")
	class, sure := q.get(ctx, selection{in: storagev1.SchemeGroupVersion.WithResource("storageclasses"), name: name}, "StorageClass")
	if class == nil {
		if sure {
			q.absent(ctx, "StorageClass", "", name, "it is not installed, or the operator that makes it has not come that far")
		}
		return
	}
	driver := cmp.Or(v.String("driver"), text(class, "provisioner"))
	q.driverPods(ctx, driver)
	csi, sure := q.get(ctx, selection{in: storagev1.SchemeGroupVersion.WithResource("csidrivers"), name: driver}, "CSIDriver")
	if csi == nil && sure {
		q.absent(ctx, "CSIDriver", "", driver, "whoever deploys the driver has not come that far")
	}
	items := q.list(ctx, selection{in: storagev1.SchemeGroupVersion.WithResource("csinodes")}, "CSINode")
	var without []string
	for _, item := range items {
		node, err := as[storagev1.CSINode](item)
		if err == nil && !slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver }) {
			without = append(without, node.Name)
		}
	}
	if len(without) > 0 {
		q.because(fmt.Sprintf("the kubelets of %s have not registered %s: the driver's Pod does not run there, or its registrar has not reached the kubelet",
			several(without), driver), "kubectl get csinodes -o yaml")
	}
}

// driverPods explains the DaemonSets that carry a CSI driver: they mount the
// folder of its socket.
func (q *inquiry) driverPods(ctx context.Context, driver string) {
	in := appsv1.SchemeGroupVersion.WithResource("daemonsets")
	all, err := q.a.list(ctx, in, "", "")
	if err != nil {
		q.miss("DaemonSets", err)
	}
	for i := range all {
		spec, err := json.Marshal(all[i].Object["spec"])
		if err == nil && strings.Contains(string(spec), "/plugins/"+driver) {
			q.workload(ctx, selection{in: in, namespace: all[i].GetNamespace(), name: all[i].GetName()}, "DaemonSet")
		}
	}
}

// Package csi does in the lab the work of Hetzner Cloud's CSI driver and the sidecars beside it, on the
// emulated API.
//
// A node has the driver with its server's id and location, and takes at most 16 volumes. A claim waits for
// the first Pod that uses it: the scheduler chooses a node, and the volume is made in the location of that,
// with the size in whole GiB, 10 at least. One node at a time may have it. It is attached while a Pod on a
// node uses it, and deleted with its claim if the class says so. A cluster that is destroyed leaves its
// volumes behind. Sources: internal/driver/controller.go and internal/volsrv/volume.go of v2.22.1;
// external-provisioner.
//
// Missing: growing volumes, encryption and file systems. A Pod is ready before its volume is attached.
package csi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud"
)

// Name is the driver's, and location the label of a node and of a volume.
const (
	Name     = "csi.hetzner.cloud"
	location = Name + "/location"
)

// mostVolumes is how many volumes a server takes.
const mostVolumes = 16

// Driver is the controller, and the plugins on all nodes.
type Driver struct {
	w    *cluster.View
	http *http.Client

	env    map[string]string // of the controller
	client *api.Client
	failed map[string]bool // steps that failed at their last try
}

// New returns a driver that calls the API through h.
func New(w *cluster.View, h *http.Client) *Driver {
	return &Driver{w: w, http: h, failed: map[string]bool{}}
}

// Close ends nothing.
func (d *Driver) Close() {}

// Look takes the next steps that are due.
func (d *Driver) Look(ctx context.Context) error {
	controller, err := d.w.Deployment(ctx, "hcloud-csi-controller")
	if err != nil || controller == nil {
		return err
	}
	d.env, err = hcloud.Environment(ctx, d.w, controller.Namespace, controller.Spec.Template.Spec)
	if err != nil {
		return err
	}
	d.client = hcloud.Client(d.env, d.http)
	return errors.Join(d.register(ctx), d.provision(ctx), d.attach(ctx), d.remove(ctx))
}

// register takes the driver into the kubelets of the nodes where its plugin is ready.
func (d *Driver) register(ctx context.Context) error {
	set, err := d.w.DaemonSet(ctx, "hcloud-csi-node")
	if err != nil || set == nil {
		return err
	}
	pods, err := d.w.Typed.CoreV1().Pods(set.Namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0",
		LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return err
	}
	nodes, err := d.w.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	labels := map[string]string{}
	for _, n := range nodes.Items {
		labels[n.Name] = n.Labels[location]
	}
	var errs []error
	for _, p := range pods.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if ready && labels[p.Spec.NodeName] == "" {
			errs = append(errs, d.registerNode(ctx, p.Spec.NodeName))
		}
	}
	return errors.Join(errs...)
}

// registerNode asks the API for what a plugin reads from the metadata of its server.
func (d *Driver) registerNode(ctx context.Context, name string) error {
	s, _, err := d.client.Server.GetByName(ctx, name)
	if err != nil || s == nil {
		return err
	}
	count := int32(mostVolumes)
	if err := d.w.Register(ctx, name, storagev1.CSINodeDriver{Name: Name, NodeID: strconv.FormatInt(s.ID, 10),
		TopologyKeys: []string{location}, Allocatable: &storagev1.VolumeNodeResources{Count: &count},
	}); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, location, s.Location.Name)
	_, err = d.w.Typed.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{})
	return cluster.Unless(err, apierrors.IsNotFound)
}

// warn records the event by which a sidecar reports a failure about a claim, as it does at each try.
func (d *Driver) warn(ctx context.Context, c corev1.PersistentVolumeClaim, failure error) error {
	err := d.w.Warn(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Namespace: c.Namespace, Name: c.Name, UID: c.UID}, Name, "ProvisioningFailed",
		fmt.Sprintf("failed to provision volume with StorageClass %q: %v", classOf(c), failure))
	return errors.Join(cluster.About("claim "+c.Namespace+"/"+c.Name, failure), err)
}

// due reports whether a step that has failed is to be tried again.
func (d *Driver) due(step string) bool {
	if !d.w.Passed(step, 5*time.Second) {
		return false
	}
	d.w.Restart(step)
	return true
}

package csi_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/hcloud"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud/csi"
)

// project is a project with the server worker-01 in nbg1, and a cluster with its node.
type project struct {
	*testing.T
	k      *clustertest.Stage
	s      *emulator.Server
	d      *csi.Driver
	server *api.Server
}

func in(t *testing.T) project {
	t.Helper()
	s := emulator.New(emulator.Config{Token: "writes"})
	t.Cleanup(s.Close)
	s.AddImage(schema.Image{Description: "Talos", Architecture: "x86"})
	front := httptest.NewServer(s)
	t.Cleanup(front.Close)
	client := api.NewClient(api.WithEndpoint(front.URL+"/v1"), api.WithToken("writes"))
	p := project{T: t, s: s}
	images, err := client.Image.All(t.Context())
	p.must(err)
	made, _, err := client.Server.Create(t.Context(), api.ServerCreateOpts{Name: "worker-01",
		Image: images[0], ServerType: &api.ServerType{Name: "cx33"}, Location: &api.Location{Name: "nbg1"}})
	p.must(err)
	p.must(client.Action.WaitFor(t.Context(), append(made.NextActions, made.Action)...))
	p.server = made.Server

	controller := clustertest.Deployment("kube-system", "hcloud-csi-controller")
	controller.Spec.Template.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{
		{Name: "HCLOUD_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			Key: "token", LocalObjectReference: corev1.LocalObjectReference{Name: "hcloud-csi"}}}},
		{Name: "HCLOUD_VOLUME_EXTRA_LABELS", Value: "castle_cluster=green"},
		{Name: "HCLOUD_ENDPOINT", Value: front.URL + "/v1"}}}}
	plugin := map[string]string{"component": "node"}
	deletes, bind := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingWaitForFirstConsumer
	p.k = clustertest.New(nil, 0, controller,
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "hcloud-csi-node"},
			Spec:   appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: plugin}},
			Status: appsv1.DaemonSetStatus{NumberReady: 1}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "plugin", Labels: plugin},
			Spec: corev1.PodSpec{NodeName: "worker-01"},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
				Status: corev1.ConditionTrue}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-01", UID: "n"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "hcloud-csi"},
			Data: map[string][]byte{"token": []byte("writes")}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hcloud-volumes"}, Provisioner: csi.Name,
			ReclaimPolicy: &deletes, VolumeBindingMode: &bind})
	p.d = csi.New(p.k.World, http.DefaultClient)
	return p
}

func (p project) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p project) looks() {
	p.Helper()
	p.k.Look(p.T, p.d)
}

// claims creates a claim that the volume controller has handed to the driver.
func (p project) claims(size string, mode corev1.PersistentVolumeAccessMode) {
	p.Helper()
	class := "hcloud-volumes"
	_, err := p.k.World.Typed.CoreV1().PersistentVolumeClaims("db").Create(p.Context(),
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "data", UID: "u1",
				Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": csi.Name}},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
				AccessModes: []corev1.PersistentVolumeAccessMode{mode},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse(size)}}},
		}, metav1.CreateOptions{})
	p.must(err)
}

// schedules is the scheduler's choice for the first Pod that uses the claim.
func (p project) schedules() {
	p.Helper()
	claims := p.k.World.Typed.CoreV1().PersistentVolumeClaims("db")
	c, err := claims.Get(p.Context(), "data", metav1.GetOptions{})
	p.must(err)
	c.Annotations["volume.kubernetes.io/selected-node"] = "worker-01"
	_, err = claims.Update(p.Context(), c, metav1.UpdateOptions{})
	p.must(err)
}

// uses creates a Pod on the node that uses the claim.
func (p project) uses() {
	p.Helper()
	_, err := p.k.World.Typed.CoreV1().Pods("db").Create(p.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "postgres"},
		Spec: corev1.PodSpec{NodeName: "worker-01", Volumes: []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
	}, metav1.CreateOptions{})
	p.must(err)
}

// volume is the PersistentVolume of the claim.
func (p project) volume() *corev1.PersistentVolume {
	p.Helper()
	v, err := p.k.World.Typed.CoreV1().PersistentVolumes().Get(p.Context(), "pvc-u1", metav1.GetOptions{})
	p.must(err)
	return v
}

func TestANodeHasTheDriverWithItsServerAndLocation(t *testing.T) {
	p := in(t)
	p.looks()
	n, err := p.k.World.Typed.StorageV1().CSINodes().Get(t.Context(), "worker-01", metav1.GetOptions{})
	p.must(err)
	if d := n.Spec.Drivers[0]; d.Name != csi.Name || d.NodeID != strconv.FormatInt(p.server.ID, 10) ||
		fmt.Sprint(d.TopologyKeys) != "[csi.hetzner.cloud/location]" || *d.Allocatable.Count != 16 {
		t.Errorf("driver %+v", d)
	}
	node, err := p.k.World.Typed.CoreV1().Nodes().Get(t.Context(), "worker-01", metav1.GetOptions{})
	p.must(err)
	if node.Labels["csi.hetzner.cloud/location"] != "nbg1" {
		t.Errorf("labels %v", node.Labels)
	}
}

func TestAVolumeWaitsForAPodAndEndsWithItsClaim(t *testing.T) {
	p := in(t)
	p.claims("1Gi", corev1.ReadWriteOnce)
	p.looks()
	if all := p.s.Volumes(); len(all) != 0 {
		t.Fatalf("volumes before a Pod needs one: %+v", all)
	}
	p.schedules()
	p.looks()
	all := p.s.Volumes()
	want := map[string]string{"managed-by": "csi-driver", "castle_cluster": "green", "pvc-name": "data",
		"pvc-namespace": "db", "pv-name": "pvc-u1"}
	if len(all) != 1 || all[0].Size != 10 || all[0].Location.Name != "nbg1" ||
		!maps.Equal(all[0].Labels, want) {
		t.Fatalf("volumes %+v", all)
	}
	v := p.volume()
	if v.Spec.Capacity.Storage().String() != "10Gi" ||
		v.Spec.CSI.VolumeHandle != strconv.FormatInt(all[0].ID, 10) ||
		v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "nbg1" {
		t.Errorf("volume %+v", v.Spec)
	}
	p.uses()
	p.looks()
	p.looks()
	if got := p.s.Volumes()[0].Server; got == nil || *got != p.server.ID {
		t.Errorf("the volume is attached to %v", got)
	}

	// The claim goes while a Pod uses it: the volume stays until it is detached.
	p.must(p.k.World.Typed.CoreV1().PersistentVolumeClaims("db").Delete(t.Context(), "data",
		metav1.DeleteOptions{}))
	v.Status.Phase = corev1.VolumeReleased
	_, err := p.k.World.Typed.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), v,
		metav1.UpdateOptions{})
	p.must(err)
	p.looks()
	if len(p.s.Volumes()) != 1 {
		t.Error("the volume is deleted while it is attached")
	}
	p.must(p.k.World.Typed.CoreV1().Pods("db").Delete(t.Context(), "postgres", metav1.DeleteOptions{}))
	p.looks()
	p.looks()
	if all := p.s.Volumes(); len(all) != 0 {
		t.Errorf("volumes %+v", all)
	}
	left, err := p.k.World.Typed.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	p.must(err)
	if len(left.Items) != 0 {
		t.Errorf("attachments %+v", left.Items)
	}
}

func TestAVolumeForSeveralNodesIsRefused(t *testing.T) {
	p := in(t)
	p.looks()
	p.claims("10Gi", corev1.ReadWriteMany)
	p.schedules()
	if err := p.d.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "is not supported") {
		t.Errorf("error %v", err)
	}
	events, err := p.k.World.Typed.CoreV1().Events("db").List(t.Context(), metav1.ListOptions{})
	p.must(err)
	if len(events.Items) != 1 || events.Items[0].Reason != "ProvisioningFailed" || len(p.s.Volumes()) != 0 {
		t.Errorf("events %+v, volumes %+v", events.Items, p.s.Volumes())
	}
}

package kube

import (
	"maps"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestReclaimPoliciesAreThoseOfTheDriversVolumes(t *testing.T) {
	f := newFakeAPI(t)
	f.kinds = []kind{{"v1", "PersistentVolume", "persistentvolumes", false}}
	const volumes = "/api/v1/persistentvolumes"
	f.add(t, volumes+"/kept", `{kind: PersistentVolume, spec: {persistentVolumeReclaimPolicy: Retain,
		csi: {driver: csi.hetzner.cloud, volumeHandle: "42"}}}`)
	f.add(t, volumes+"/deleted", `{kind: PersistentVolume, spec: {persistentVolumeReclaimPolicy: Delete,
		csi: {driver: csi.hetzner.cloud, volumeHandle: "43"}}}`)
	f.add(t, volumes+"/local", `{kind: PersistentVolume, spec: {persistentVolumeReclaimPolicy: Retain}}`)
	target := gate.Target{Kubeconfig: f.kubeconfig()}
	got, err := ReclaimPolicies(t.Context(), target)
	want := map[string]string{"csi.hetzner.cloud/42": gate.Retain, "csi.hetzner.cloud/43": gate.Delete}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	f.Close()
	if _, err := ReclaimPolicies(t.Context(), target); err == nil {
		t.Error("a cluster that does not answer has no PersistentVolumes")
	}
}

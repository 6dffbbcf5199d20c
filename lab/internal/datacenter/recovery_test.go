package datacenter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosapi "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// through connects as the administrator of a cluster to one of its machines.
func through(t *testing.T, talosconfig []byte, address string) []talosapi.OptionFunc {
	t.Helper()
	config, err := clientconfig.FromBytes(talosconfig)
	if err != nil {
		t.Fatal(err)
	}
	return []talosapi.OptionFunc{talosapi.WithConfig(config), talosapi.WithEndpoints(address)}
}

// snapshotOf reads a snapshot to its end.
func snapshotOf(t *testing.T, options []talosapi.OptionFunc) (data []byte) {
	t.Helper()
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		stream, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
		if err != nil {
			return err
		}
		data, err = io.ReadAll(stream)
		return errors.Join(err, stream.Close())
	}, options...)
	return data
}

// complete is the check of a snapshot by its own hash.
func complete(data []byte) error {
	if len(data)%512 != sha256.Size {
		return fmt.Errorf("%d bytes have no hash", len(data))
	}
	body, want := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if hash := sha256.Sum256(body); !bytes.Equal(hash[:], want) {
		return errors.New("another hash")
	}
	return nil
}

// voters waits until all of so many members of etcd vote.
func voters(t *testing.T, count int, options []talosapi.OptionFunc) {
	t.Helper()
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		list, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return err
		}
		members := list.GetMessages()[0].GetMembers()
		learns := func(m *machineapi.EtcdMember) bool { return m.GetIsLearner() }
		if len(members) != count || slices.ContainsFunc(members, learns) {
			return fmt.Errorf("%v", members)
		}
		return nil
	}, options...)
}

func note(t *testing.T, d *Datacenter, name string) {
	t.Helper()
	if _, err := client(d).CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// recoverEtcd uploads a snapshot and bootstraps the machine from it.
func recoverEtcd(t *testing.T, snapshot []byte, options []talosapi.OptionFunc) {
	t.Helper()
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		if _, err := c.EtcdRecover(ctx, bytes.NewReader(snapshot)); err != nil {
			return err
		}
		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true})
	}, options...)
}

// The hypervisors of all control planes are lost, and their successors continue with a snapshot.
func TestASnapshotBringsALostClusterBack(t *testing.T) {
	addresses := []string{"127.0.7.111", "127.0.7.112", "127.0.7.113"}
	d, log := start(t, Config{})
	config, talosconfig := generated(t, "127.0.7.110", addresses...)
	boot(t, d, config, addresses...)
	first := through(t, talosconfig, addresses[0])
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	}, first...)
	d.kube.configured(talos.MachineSpec{Address: "127.0.7.114", Hostname: "worker-01",
		TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3"})
	log.await(t, "kubernetes: answers at", 4)
	voters(t, 3, first)
	note(t, d, "kept")
	snapshot := snapshotOf(t, first)
	if err := complete(snapshot); err != nil ||
		!bytes.Contains(snapshot, []byte("/registry/configmaps/default/kept")) {
		t.Fatalf("a snapshot of %d bytes: %v", len(snapshot), err)
	}
	note(t, d, "late")

	d.stopped(controlPlane(1, addresses[1]))
	d.stopped(controlPlane(2, addresses[2]))
	log.await(t, "kubernetes: etcd of blue has no quorum", 1)
	_, err := client(d).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err == nil || err.Error() != "etcdserver: request timed out" {
		t.Errorf("one of three answers: %v", err)
	}
	answer, err := client(d).Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	if err == nil || !strings.Contains(string(answer), "[-]etcd failed") {
		t.Errorf("it is ready: %s, %v", answer, err)
	}
	if err := complete(snapshotOf(t, first)); err != nil {
		t.Errorf("a snapshot without a quorum: %v", err)
	}
	d.started(controlPlane(1, addresses[1]))
	log.await(t, "kubernetes: etcd of blue has a quorum", 1)
	if _, err := client(d).CoreV1().ConfigMaps("default").Get(t.Context(), "late",
		metav1.GetOptions{}); err != nil {
		t.Errorf("two of three: %v", err)
	}

	for i, a := range addresses {
		d.stopped(controlPlane(i, a))
		d.destroyed(controlPlane(i, a))
	}
	log.await(t, "kubernetes: blue is gone", 1)
	boot(t, d, config, addresses...)
	damaged := bytes.Clone(snapshot)
	damaged[bytes.Index(damaged, []byte("/registry/configmaps/default/kept"))]++
	recoverEtcd(t, damaged, first)
	log.await(t, "talos 127.0.7.111: etcd is not recovered: error recovering from the snapshot: expected "+
		"sha256", 1)
	if _, err := d.kube.recover(addresses[0], snapshot[:len(snapshot)/2], false); err == nil {
		t.Error("half a snapshot is enough")
	}
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		return c.ResetGeneric(ctx, &machineapi.ResetRequest{Reboot: true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}}})
	}, first...)
	log.await(t, "talos 127.0.7.111: reset", 1)
	recoverEtcd(t, snapshot, first)
	log.await(t, "talos 127.0.7.111: etcd is recovered from a snapshot", 1)
	log.await(t, "kubernetes: blue answers", 2)
	configMaps := client(d).CoreV1().ConfigMaps("default")
	if _, err := configMaps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("from before the snapshot: %v", err)
	}
	if _, err := configMaps.Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("from after the snapshot: %v", err)
	}
	voters(t, 3, first)
	awaitNodes(t, client(d), map[string]corev1.ConditionStatus{"cp-01": "True", "cp-02": "True",
		"cp-03": "True", "worker-01": "True"})
}

// Nothing but etcd's data is lost, and only one of the machines that the snapshot knows is on.
func TestAWipedControlPlaneIsRecovered(t *testing.T) {
	const address = "127.0.7.121"
	d, log := start(t, Config{Faults: Faults{SnapshotCut: true}})
	through := through(t, raise(t, d, "127.0.7.120", address), address)
	worker := talos.MachineSpec{Address: "127.0.7.124", Hostname: "worker-01", TalosVersion: "v1.13.0",
		KubernetesVersion: "v1.36.3"}
	d.kube.configured(worker)
	log.await(t, "kubernetes: answers at", 2)
	awaitNodes(t, client(d), map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "True"})
	if err := complete(snapshotOf(t, through)); err == nil {
		t.Error("the first snapshot is whole")
	}
	snapshot := snapshotOf(t, through)
	if err := complete(snapshot); err != nil {
		t.Error(err)
	}
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		status, err := c.EtcdStatus(ctx)
		if err == nil && status.GetMessages()[0].GetMemberStatus().GetDbSize() < int64(len(snapshot)/2) {
			t.Errorf("a snapshot of %d bytes, and %v", len(snapshot), status)
		}
		return err
	}, through...)
	d.kube.off(worker.Address)
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		return c.ResetGeneric(ctx, &machineapi.ResetRequest{Reboot: true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}}})
	}, through...)
	log.await(t, "kubernetes: blue is gone", 1)
	recoverEtcd(t, snapshot, through)
	log.await(t, "kubernetes: blue answers", 2)
	awaitNodes(t, client(d), map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "Unknown"})
}

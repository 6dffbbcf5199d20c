package datacenter

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

func TestTheAPIThatRestartsRefusesMeanwhileAndKeepsItsData(t *testing.T) {
	d, log := start(t, Config{Faults: Faults{Times: map[string]time.Duration{"api-restarts": time.Second}}})
	port := freePort(t)
	cp, vip := netip.MustParsePrefix("127.0.7.41/24"), "127.0.7.40"
	d.started(proxmox.VM{ID: 421, Name: "cp-01", Address: cp, Image: "nocloud.img"})
	d.kube.configured(talos.MachineSpec{Address: cp.Addr().String(), Hostname: "cp-01", ControlPlane: true,
		TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3"})
	d.kube.virtualIP(vip, cp.Addr().String())
	d.kube.bootstrapped(spec(t, vip, port))
	log.await(t, "kubernetes: answers at", 2)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := client(d).CoreV1().ConfigMaps("default").Create(t.Context(), kept,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	log.await(t, "fault api-restarts: begins", 1)
	for _, address := range []string{vip, cp.Addr().String()} {
		for {
			c, err := net.Dial("tcp", net.JoinHostPort(address, port))
			if errors.Is(err, syscall.ECONNREFUSED) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			c.Close() // the process is about to be killed
		}
	}
	log.await(t, "fault api-restarts: ends", 1)
	if _, err := client(d).CoreV1().ConfigMaps("default").Get(t.Context(), "kept",
		metav1.GetOptions{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	for _, address := range []string{vip, cp.Addr().String()} {
		c, err := net.Dial("tcp", net.JoinHostPort(address, port))
		if err != nil {
			t.Errorf("after the restart: %v", err)
			continue
		}
		c.Close()
	}
}

package datacenter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	talosapi "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
)

func TestTheAPIThatRestartsRefusesMeanwhileAndKeepsItsData(t *testing.T) {
	d, log := start(t, Config{Faults: Faults{
		Times: map[string]time.Duration{"api-restarts": 5 * time.Second}}})
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
			if err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Fatal(err)
			}
			if err == nil {
				c.Close()
			}
			// The process is about to be killed, or was while this connection waited to be accepted.
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

// Two control planes get another release, one after the other. Nobody at the other one notices.
func TestEachControlPlaneRestartsItsOwnAPIServer(t *testing.T) {
	d, log := start(t, Config{})
	port, vip := freePort(t), "127.0.7.60"
	machine := func(i int, release string) talos.MachineSpec {
		return talos.MachineSpec{Address: fmt.Sprintf("127.0.7.6%d", i), Hostname: fmt.Sprintf("cp-0%d", i),
			ControlPlane: true, TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3",
			APIServerVersion: release}
	}
	for i := 1; i <= 2; i++ {
		d.started(proxmox.VM{ID: 420 + i, Name: machine(i, "").Hostname, Image: "nocloud.img",
			Address: netip.MustParsePrefix(machine(i, "").Address + "/24")})
		d.kube.configured(machine(i, "v1.36.3"))
	}
	d.kube.virtualIP(vip, machine(1, "").Address)
	d.kube.bootstrapped(spec(t, vip, port))
	log.await(t, "kubernetes: answers at", 3)
	check := func(want map[string]string) {
		t.Helper()
		for address, release := range want {
			have, err := versionAt(t, d, net.JoinHostPort(address, port))
			if err != nil || have != release {
				t.Errorf("%s tells %q, %v; want %s", address, have, err, release)
			}
		}
	}
	check(map[string]string{vip: "v1.36.3", "127.0.7.61": "v1.36.3", "127.0.7.62": "v1.36.3"})
	dial := func(address string) net.Conn {
		c, err := net.Dial("tcp", net.JoinHostPort(address, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	process := client(d)
	first, second := dial(vip), dial("127.0.7.62")
	d.kube.configured(machine(2, "v1.36.4"))
	ended(t, second)
	log.await(t, "kubernetes: the API server of cp-02 restarts as v1.36.4", 1)
	log.await(t, "kubernetes: answers at 127.0.7.62:", 2)
	check(map[string]string{vip: "v1.36.3", "127.0.7.61": "v1.36.3", "127.0.7.62": "v1.36.4"})
	if err := first.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to the other control plane: %v", err)
	}

	d.kube.configured(machine(1, "v1.36.4"))
	log.await(t, "kubernetes: answers at "+vip+":", 2) // which its holder keeps
	check(map[string]string{vip: "v1.36.4", "127.0.7.61": "v1.36.4", "127.0.7.62": "v1.36.4"})
	d.kube.configured(machine(2, "v1.36.5"))
	d.kube.virtualIP(vip, "127.0.7.62")
	log.await(t, "kubernetes: answers at "+vip+":", 3) // when the API server of the new holder is up
	check(map[string]string{vip: "v1.36.5", "127.0.7.61": "v1.36.4"})
	if client(d) != process {
		t.Error("the whole control plane has restarted")
	}
}

// versionAt asks the API server at an address for its release.
func versionAt(t *testing.T, d *Datacenter, address string) (string, error) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("https://"+address,
		filepath.Join(d.config.Dir, "kubernetes", "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.TLSClientConfig.ServerName = "localhost"
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	info, err := api.ServerVersion()
	if err != nil {
		return "", err
	}
	return info.GitVersion, nil
}

// A machine restarts by Talos' word, and by that of Proxmox, which gives it other hardware meanwhile.
func TestAMachineThatRestartsIsDownMeanwhile(t *testing.T) {
	d, log := start(t, Config{})
	port, vip := freePort(t), "127.0.7.70"
	cp := talos.MachineSpec{Address: "127.0.7.71", Hostname: "cp-01", ControlPlane: true,
		TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3"}
	worker := talos.MachineSpec{Address: "127.0.7.74", Hostname: "worker-01", TalosVersion: "v1.13.0",
		KubernetesVersion: "v1.36.3"}
	for id, m := range map[int]talos.MachineSpec{421: cp, 424: worker} {
		vm := proxmox.VM{ID: id, Name: m.Hostname, Image: "nocloud.img", Running: true,
			Config: map[string]string{"memory": "4096", "cores": "2", "ipconfig0": "ip=" + m.Address + "/24"}}
		d.proxmox.AddVM(vm)
		vm.Address = netip.MustParsePrefix(m.Address + "/24")
		d.started(vm)
		d.kube.configured(m)
	}
	d.kube.virtualIP(vip, cp.Address)
	d.kube.bootstrapped(spec(t, vip, port))
	log.await(t, "kubernetes: answers at", 2)
	k := client(d)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "True"})

	d.kube.down(worker.Address)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "False"})
	worker.TalosVersion = "v1.13.1"
	d.kube.configured(worker)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "True"})

	d.proxmox.Configure(424, map[string]string{"memory": "8192"})
	r := httptest.NewRequest(http.MethodPost, "/api2/json/nodes/proxmox/qemu/424/status/reboot", nil)
	r.Header.Set("Authorization", "PVEAPIToken="+d.Credentials()["PROXMOX_VE_API_TOKEN"])
	w := httptest.NewRecorder()
	d.proxmox.Handler().ServeHTTP(w, r)
	log.await(t, "talos 127.0.7.74: switched itself off", 1)
	log.await(t, "vm 424 worker-01: started; Talos boots at", 2)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "False"})
	d.kube.configured(worker)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "True"})
	n, err := k.CoreV1().Nodes().Get(t.Context(), "worker-01", metav1.GetOptions{})
	if err != nil || n.Status.Capacity.Memory().Value() != 8<<30 ||
		n.Status.NodeInfo.OSImage != "Talos (v1.13.1)" {
		t.Errorf("%+v, %v", n.Status, err)
	}
}

// The worker dies when the control plane gets another configuration, and no start of its VM revives it.
func TestADeadNodeStaysDead(t *testing.T) {
	d, log := start(t, Config{Faults: Faults{Nodes: map[string]string{"node-dead": "worker-01"}}})
	port, vip := freePort(t), "127.0.7.80"
	cp := talos.MachineSpec{Address: "127.0.7.81", Hostname: "cp-01", ControlPlane: true}
	worker := talos.MachineSpec{Address: "127.0.7.84", Hostname: "worker-01"}
	var vm proxmox.VM // the worker's
	for _, m := range []talos.MachineSpec{cp, worker} {
		vm = proxmox.VM{ID: 420 + int(m.Address[len(m.Address)-1]-'0'), Name: m.Hostname,
			Image: "nocloud.img", Running: true,
			Config: map[string]string{"ipconfig0": "ip=" + m.Address + "/24"}}
		d.proxmox.AddVM(vm)
		vm.Address = netip.MustParsePrefix(m.Address + "/24")
		d.started(vm)
		d.configured(m)
	}
	d.kube.virtualIP(vip, cp.Address)
	d.kube.bootstrapped(spec(t, vip, port))
	log.await(t, "kubernetes: answers at", 2)
	awaitNodes(t, client(d), map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "True"})
	if strings.Contains(log.String(), "node-dead") {
		t.Fatal("it has died while the cluster was created")
	}
	cp.Labels = map[string]string{"example.org/busy": "yes"}
	d.configured(cp)
	log.await(t, "fault node-dead: begins", 1)
	if stage := d.fleet.Stage(worker.Address); stage != talos.Off {
		t.Errorf("the guest is %s", stage)
	}
	if vms := d.proxmox.VMs(); !vms[1].Running || !vms[1].Deaf {
		t.Errorf("the VM: %+v", vms[1])
	}
	awaitNodes(t, client(d), map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "Unknown"})
	d.stopped(vm)
	d.started(vm)
	log.await(t, "vm 424 worker-01: started, and its guest is dead", 1)
	if stage := d.fleet.Stage(worker.Address); stage != talos.Off {
		t.Errorf("after a start the guest is %s", stage)
	}
	d.stopped(vm)
	d.destroyed(vm) // and another one takes its place
	d.started(vm)
	if stage := d.fleet.Stage(worker.Address); stage != talos.Booting {
		t.Errorf("the next machine is %s", stage)
	}
}

func TestAnUpgradeFailsOnANode(t *testing.T) {
	const address = "127.0.7.91"
	d, log := start(t, Config{
		Faults: Faults{Nodes: map[string]string{"upgrade-fails": "cp-01"}},
		Kubernetes: func(context.Context, controlplane.Order) (*controlplane.Process, error) {
			return nil, errors.New("not in this test")
		},
	})
	config, err := clientconfig.FromBytes(raise(t, d, "127.0.7.90", address))
	if err != nil {
		t.Fatal(err)
	}
	log.await(t, "talos "+address+": cp-01 is configured", 1)
	options := []talosapi.OptionFunc{talosapi.WithConfig(config), talosapi.WithEndpoints(address)}
	upgrade := func(want string, times int) {
		t.Helper()
		call(t, func(ctx context.Context, c *talosapi.Client) error {
			image := talosapi.WithUpgradeImage("ghcr.io/siderolabs/installer:v1.13.1")
			//lint:ignore SA1019 talosctl calls it for machines before v1.13, and they still know it
			_, err := c.UpgradeWithOptions(ctx, image, talosapi.WithUpgradeForce(true))
			return err
		}, options...)
		log.await(t, "talos "+address+": cp-01 is configured", times)
		call(t, func(ctx context.Context, c *talosapi.Client) error {
			v, err := c.Version(ctx)
			if err == nil && v.Messages[0].Version.Tag != want {
				t.Errorf("Talos %s runs, want %s", v.Messages[0].Version.Tag, want)
			}
			return err
		}, options...)
	}
	upgrade("v1.13.0", 2)
	upgrade("v1.13.1", 3) // it fails once
	log.await(t, "talos "+address+": goes down", 2)
}

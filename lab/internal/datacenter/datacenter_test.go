package datacenter

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
)

// The test program is also the control plane's process.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == controlplane.Arg {
		if err := controlplane.Main(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// One real Kubernetes follows all state changes of its machines.
func TestKubernetesLivesAndDiesWithItsMachines(t *testing.T) {
	d, log := start(t, Config{})
	port := freePort(t)
	cp, worker, vip := netip.MustParsePrefix("127.0.7.11/24"), netip.MustParsePrefix("127.0.7.14/24"),
		"127.0.7.10"
	cpVM := proxmox.VM{ID: 421, Name: "cp-01", Address: cp, Image: "nocloud.img",
		Config: map[string]string{"cores": "2", "memory": "2048"}}
	workerVM := proxmox.VM{ID: 424, Name: "worker-01", Address: worker, Image: "nocloud.img"}
	first := talos.MachineSpec{Address: cp.Addr().String(), Hostname: "cp-01", ControlPlane: true,
		TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3"}
	second := talos.MachineSpec{Address: worker.Addr().String(), Hostname: "worker-01",
		TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3"}
	api := net.JoinHostPort(vip, port)

	d.started(cpVM)
	d.started(workerVM)
	d.kube.configured(second) // before there is a cluster that it could join
	d.kube.configured(first)
	d.kube.virtualIP(vip, cp.Addr().String())
	d.kube.bootstrapped(spec(t, vip, port))
	log.await(t, "kubernetes: answers at", 2)
	k := client(d)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "True"})
	if _, err := k.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	open, err := net.Dial("tcp", api)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	d.stopped(workerVM)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "Unknown"})

	// A second control plane appears later, and has the API at its own address, by its own name.
	later := talos.MachineSpec{Address: "127.0.7.12", Hostname: "cp-02", ControlPlane: true,
		TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3", SANs: []string{"127.0.7.12", "cp-02"}}
	d.kube.configured(later)
	log.await(t, "kubernetes: answers at "+net.JoinHostPort(later.Address, port), 1)
	if err := serves(t.Context(), net.JoinHostPort(later.Address, port), later.SANs); err != nil {
		t.Error(err)
	}
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "Unknown",
		"cp-02": "True"})
	later.Hostname, later.KubernetesVersion = "cp-03", "v1.36.4" // its configuration changes
	d.kube.configured(later)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "Unknown",
		"cp-02": "Unknown", "cp-03": "True"})
	if n, err := k.CoreV1().Nodes().Get(t.Context(), "cp-03", metav1.GetOptions{}); err != nil ||
		n.Status.NodeInfo.KubeletVersion != "v1.36.4" {
		t.Errorf("cp-03: %v, %v", n, err)
	}
	d.kube.virtualIP(vip, "127.0.7.12") // it moves, and the API with it
	ended(t, open)
	if open, err = net.Dial("tcp", api); err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	d.kube.off(later.Address) // a power cut of the holder
	ended(t, open)
	if _, err := net.Dial("tcp", api); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the holder of the virtual address is off, and the API says: %v", err)
	}
	d.kube.diskLost(later.Address)
	d.kube.virtualIP(vip, "")
	if _, err := net.Dial("tcp", api); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody holds the virtual address, and the API says: %v", err)
	}
	d.kube.virtualIP(vip, cp.Addr().String())
	if open, err = net.Dial("tcp", api); err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	d.stopped(cpVM)
	if _, err := net.Dial("tcp", api); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the last control plane is off, and the API says: %v", err)
	}
	ended(t, open)

	d.started(cpVM)
	d.kube.configured(first)
	log.await(t, "kubernetes: answers at", 5)
	if _, err := client(d).CoreV1().ConfigMaps("default").Get(t.Context(), "kept",
		metav1.GetOptions{}); err != nil {
		t.Errorf("after the machine is back: %v", err)
	}
	if left := d.Leftovers(); !slices.Contains(left, "Kubernetes blue") {
		t.Errorf("left over: %v", left)
	}

	d.stopped(cpVM)
	d.destroyed(workerVM)
	d.destroyed(cpVM)
	if left := d.Leftovers(); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// A renamed machine is a new VM, which starts while the old one still has its address.
func TestAnAddressBelongsToOneVMAtATime(t *testing.T) {
	d, log := start(t, Config{})
	address := netip.MustParsePrefix("127.0.7.51/24")
	vm := func(id int, name string) proxmox.VM {
		return proxmox.VM{ID: id, Name: name, Address: address, Image: "nocloud.img"}
	}
	stage := func(want talos.Stage) {
		t.Helper()
		if got := d.fleet.Stage(address.Addr().String()); got != want {
			t.Errorf("the machine is %q, want %q", got, want)
		}
	}
	before, after := vm(421, "worker-01"), vm(422, "worker-02")
	d.started(before)
	d.started(after)
	log.await(t, "vm 422 worker-02: started, but VM 421 has its address 127.0.7.51", 1)
	d.stopped(after)
	stage(talos.Booting)
	d.started(after)
	d.stopped(before)
	log.await(t, "vm 422 worker-02: started; Talos boots at", 1)
	d.destroyed(before) // whose disks are gone already
	stage(talos.Booting)
	d.stopped(after)
	stage(talos.Off)
	d.destroyed(after)
	d.started(before)
	stage(talos.Booting)
}

// A machine that talosctl has shut down is off in Proxmox, too, where a create can start it.
func TestAMachineThatEndsByItselfStopsItsVM(t *testing.T) {
	d, lines := start(t, Config{})
	address := netip.MustParsePrefix("127.0.7.31/24")
	vm := proxmox.VM{ID: 421, Name: "cp-01", Address: address, Image: "nocloud.img", Running: true}
	d.proxmox.AddVM(vm)
	d.started(vm)
	d.switchedOff(address.Addr().String())
	if vms := d.proxmox.VMs(); vms[0].Running {
		t.Error("the VM runs on without its machine")
	}
	d.started(vm)
	lines.await(t, "vm 421 cp-01: started; Talos boots at", 2)
}

func TestThePoolsOfTheClusterExist(t *testing.T) {
	d, _ := start(t, Config{Hosts: Hosts{Commands: []string{"pveum pool add blue"}}})
	r, w := httptest.NewRequest(http.MethodGet, "/api2/json/pools", nil), httptest.NewRecorder()
	r.Header.Set("Authorization", "PVEAPIToken="+d.Credentials()["PROXMOX_VE_API_TOKEN"])
	d.proxmox.Handler().ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), `"poolid":"blue"`) {
		t.Errorf("%s", w.Body)
	}
}

// ended fails unless the connection is cut.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an open connection outlives what it went through: %v", err)
	}
}

func TestMachinesBeyondTheLoopbackAreNotBootedOutside(t *testing.T) {
	d, log := start(t, Config{})
	d.started(proxmox.VM{ID: 1, Name: "cp-01", Image: "nocloud.img",
		Address: netip.MustParsePrefix("192.0.2.11/24")})
	log.await(t, "only inside its own network namespace", 1)
	if s := d.fleet.Stage("192.0.2.11"); s != talos.Off {
		t.Errorf("stage: %s", s)
	}
}

func TestAVMWithoutAnImageBootsNothing(t *testing.T) {
	d, _ := start(t, Config{})
	d.started(proxmox.VM{ID: 1, Name: "blank", Address: netip.MustParsePrefix("127.0.7.30/24")})
	if s := d.fleet.Stage("127.0.7.30"); s != talos.Off {
		t.Errorf("stage: %s", s)
	}
}

func TestEveryInfisicalFolderHoldsTheUsersSecrets(t *testing.T) {
	v, err := newFolders(Config{Speed: 1000, Secrets: []string{"OWN_SECRET"},
		Faults: Faults{SecretExists: true}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(v.handler())
	defer s.Close()
	token := login(t, s.URL, v)
	names := func() []string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			s.URL+"/api/v3/secrets/raw?workspaceId=p&environment=prod&secretPath=/castle/blue", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var body struct {
			Secrets []struct{ SecretKey, SecretValue string }
		}
		if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, secret := range body.Secrets {
			if secret.SecretValue != "" {
				all = append(all, secret.SecretKey)
			}
		}
		return all
	}
	for _, want := range []string{"PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "GITHUB_TOKEN", "OWN_SECRET",
		"KUBECONFIG_CONTENT"} {
		if !slices.Contains(names(), want) {
			t.Errorf("%s is missing", want)
		}
	}
	if left := v.added(); len(left) != 1 || left[0].Key != "KUBECONFIG_CONTENT" {
		t.Errorf("added by clusters: %v", left)
	}
	v.server.Remove(infisical.Folder{Workspace: "p", Environment: "prod", Path: "/castle/blue"},
		"KUBECONFIG_CONTENT")
	if slices.Contains(names(), "KUBECONFIG_CONTENT") {
		t.Error("what was deleted is back")
	}
}

func TestMissingNoticesTheLossOfAForeignVM(t *testing.T) {
	d, _ := start(t, Config{Faults: Faults{GhostVM: 421}})
	if m, left := d.Missing(), d.Leftovers(); len(m) != 0 || len(left) != 0 {
		t.Errorf("missing %v, left over %v", m, left)
	}
	for what, change := range map[string]func(vm *proxmox.VM){
		"another name": func(vm *proxmox.VM) {
			vm.Name = "blue-cp-01"
		}, "a larger disk": func(vm *proxmox.VM) { vm.Config["scsi0"] = "local-lvm:vm-421-disk-0,size=220G" },
		"stopped": func(vm *proxmox.VM) {
			vm.Running = false
		}, "started anew": func(vm *proxmox.VM) { vm.Started = time.Now().Add(time.Hour) },
	} {
		vm := ghost(421)
		change(&vm)
		d.proxmox.AddVM(vm)
		if len(d.Missing()) != 1 {
			t.Errorf("%s is not noticed", what)
		}
	}
	d.proxmox.AddVM(ghost(421))
	if m := d.Missing(); len(m) != 0 {
		t.Errorf("missing %v", m)
	}
	d.proxmox.RemoveVM(421)
	if m := d.Missing(); len(m) != 1 || !strings.Contains(m[0], `VM 421 "prod-database"`) {
		t.Errorf("missing %v", m)
	}
}

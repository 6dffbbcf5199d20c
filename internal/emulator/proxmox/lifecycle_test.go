package proxmox

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const imageVolume = "local:import/talos.qcow2"

// order is the provider's request for a VM.
func order() string {
	return url.Values{
		"vmid": {"421"}, "name": {"blue-cp-01"}, "tags": {"Castle;blue"}, "cores": {"4"}, "onboot": {"1"},
		"memory":     {"4096"},
		"cipassword": {"geheim"}, "ide2": {"file=local-lvm:cloudinit,"},
		"net0":      {"model=virtio,bridge=vmbr0,firewall=0"},
		"ipconfig0": {"gw=10.0.0.1,ip=10.0.0.21/24"},
		"scsi1":     {"file=local-lvm:50,format=raw,size=53687091200,iothread=1"},
		"scsi0": {"file=local-lvm:0,import-from=" + imageVolume +
			",size=21474836480,iothread=1,aio=io_uring"},
	}.Encode()
}

func withImage(t *testing.T, c Config) node {
	t.Helper()
	n := listen(t, c)
	n.server.AddDisk(Disk{Volume: imageVolume, Size: 1 << 30, Format: "qcow2", Content: "import",
		Source: "https://factory.talos.dev/image/nocloud-amd64.qcow2"})
	return n
}

func (n node) config(id string) map[string]any {
	n.t.Helper()
	a := n.send("GET", "nodes/proxmox/qemu/"+id+"/config", "")
	config, ok := a.data.(map[string]any)
	if !ok {
		n.t.Fatalf("config of %s: %d %s", id, a.code, a.reason)
	}
	return config
}

func volumes(s *Server) []string {
	var all []string
	for _, d := range s.Disks() {
		all = append(all, d.Volume)
	}
	return all
}

// generated are the options that a node generates.
var generated = map[string]*regexp.Regexp{
	"net0":    regexp.MustCompile(`^virtio=BC:24:11(:[0-9A-F]{2}){3},bridge=vmbr0,firewall=0$`),
	"smbios1": regexp.MustCompile(`^uuid=[0-9a-f-]{36}$`),
	"vmgenid": regexp.MustCompile(`^[0-9a-f-]{36}$`),
	"digest":  regexp.MustCompile(`^[0-9a-f]{40}$`),
	"meta":    regexp.MustCompile(`^creation-qemu=.*,ctime=\d+$`),
}

func TestCreatedVMIsStoredAsOnARealNode(t *testing.T) {
	n := withImage(t, Config{})
	if exit, _ := n.task("POST", "nodes/proxmox/qemu", order()); exit != "OK" {
		t.Fatal(exit)
	}
	config := n.config("421")
	for key, want := range map[string]any{
		"name": "blue-cp-01", "tags": "blue;castle", "cores": 4.0, "onboot": 1.0, "memory": "4096",
		"cipassword": "**********",
		"scsi0":      "local-lvm:vm-421-disk-0,aio=io_uring,iothread=1,size=8G",
		"scsi1":      "local-lvm:vm-421-disk-1,iothread=1,size=50G",
		"ide2":       "local-lvm:vm-421-cloudinit,media=cdrom,size=4M",
	} {
		if config[key] != want {
			t.Errorf("%s: got %#v, want %#v", key, config[key], want)
		}
	}
	for key, form := range generated {
		if value, _ := config[key].(string); !form.MatchString(value) {
			t.Errorf("%s: %q", key, value)
		}
	}
	vm := n.server.VMs()[0]
	if vm.Address.String() != "10.0.0.21/24" || vm.Gateway.String() != "10.0.0.1" ||
		vm.Image != "talos.qcow2" ||
		vm.ImageURL != "https://factory.talos.dev/image/nocloud-amd64.qcow2" {
		t.Errorf("hooks get %+v", vm)
	}
}

func TestVMInCreationIsLockedAndHasNoName(t *testing.T) {
	n := withImage(t, Config{})
	release := make(chan struct{})
	n.server.Fail(Fault{Method: "POST", Path: "nodes/*/qemu", Hold: release})
	n.send("POST", "nodes/proxmox/qemu", order())
	if config := n.config("421"); config["lock"] != "create" || config["name"] != nil {
		t.Errorf("config in creation: %v", config)
	}
	row := n.send("GET", "cluster/resources?type=vm", "").data.([]any)[0].(map[string]any)
	if row["name"] != "VM 421" || row["lock"] != "create" {
		t.Errorf("row in creation: %v", row)
	}
	if tasks := n.send("GET", "nodes/proxmox/tasks?source=active&vmid=421",
		"").data.([]any); len(tasks) != 1 {
		t.Errorf("active tasks: %v", tasks)
	}
	if a := n.send("POST", "nodes/proxmox/qemu",
		order()); a.reason != "unable to create VM 421 - VM 421 already exists on node 'proxmox'" {
		t.Errorf("a second create: %s", a.reason)
	}
	close(release)
	n.server.Idle()
	if config := n.config("421"); config["lock"] != nil || config["name"] != "blue-cp-01" {
		t.Errorf("config after creation: %v", config)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	n := withImage(t, Config{})
	n.server.Fail(Fault{Method: "POST", Path: "nodes/*/qemu", Times: 1,
		Task: "unable to create VM 421 - no space left on device"})
	if exit, _ := n.task("POST", "nodes/proxmox/qemu",
		order()); exit != "unable to create VM 421 - no space left on device" {
		t.Error(exit)
	}
	if got := volumes(n.server); len(n.server.VMs()) != 0 || len(got) != 1 {
		t.Errorf("left: %v %v", n.server.VMs(), got)
	}
	if exit, _ := n.task("POST", "nodes/proxmox/qemu", order()); exit != "OK" {
		t.Errorf("the fault was for one call, but: %s", exit)
	}
}

func TestPowerCallsTheHooks(t *testing.T) {
	var called []string
	hook := func(what string) func(VM) {
		return func(vm VM) { called = append(called, what+" "+vm.Name+" "+vm.Address.Addr().String()) }
	}
	n := withImage(t, Config{OnStart: hook("start"), OnStop: hook("stop"), OnDestroy: hook("destroy")})
	n.task("POST", "nodes/proxmox/qemu", order())
	const guest = "nodes/proxmox/qemu/421"
	for _, verb := range []string{"start", "reboot", "stop", "stop", "start", "shutdown"} {
		if exit, _ := n.task("POST", guest+"/status/"+verb, ""); exit != "OK" {
			t.Errorf("%s: %s", verb, exit)
		}
		running := verb == "start" || verb == "reboot"
		if status := n.send("GET", guest+"/status/current",
			"").data.(map[string]any)["status"]; (status == "running") != running {
			t.Errorf("after %s: %v", verb, status)
		}
	}
	n.task("DELETE", guest+"/?destroy-unreferenced-disks=1&purge=1", "")
	want := []string{"start", "stop", "start", "stop", "start", "stop", "destroy"}
	for i := range want {
		want[i] += " blue-cp-01 10.0.0.21"
	}
	if !slices.Equal(called, want) {
		t.Errorf("called %q\nwant %q", called, want)
	}
	if got := volumes(n.server); len(n.server.VMs()) != 0 || !slices.Equal(got, []string{imageVolume}) {
		t.Errorf("left: %v %v", n.server.VMs(), got)
	}
}

func TestHighAvailabilityAnswersBeforeItActs(t *testing.T) {
	n := listen(t, Config{})
	n.server.AddVM(VM{ID: 421, HA: true})
	upid, _ := n.send("POST", "nodes/proxmox/qemu/421/status/start", "").data.(string)
	if !strings.Contains(upid, ":hastart:421:") {
		t.Errorf("task %s", upid)
	}
	n.server.Idle()
	if !n.server.VMs()[0].Running {
		t.Error("the VM was never started")
	}
}

func TestHiddenVMsAreNotListedAndKeepTheirID(t *testing.T) {
	n := listen(t, Config{})
	n.server.AddVM(VM{ID: 100, Hidden: true})
	n.server.AddVM(VM{ID: 101, Kind: "lxc"})
	if rows := n.send("GET", "cluster/resources?type=vm", "").data.([]any); len(rows) != 1 {
		t.Errorf("listed: %v", rows)
	}
	if next := n.send("GET", "cluster/nextid", "").data; next != "102" {
		t.Errorf("next id %v", next)
	}
}

func TestTicketsNeedACSRFTokenToWrite(t *testing.T) {
	n := listen(t, Config{User: "root@pam", Password: "geheim"})
	n.server.AddVM(VM{ID: 421})
	n.token = ""
	login := n.send("POST", "access/ticket", "username=root%40pam&password=geheim").data.(map[string]any)
	for _, carrier := range []string{"Cookie: PVEAuthCookie=", "Authorization: PVEAuthCookie="} {
		carrier += login["ticket"].(string)
		if a := n.send("GET", "version", "", carrier); a.code != http.StatusOK {
			t.Errorf("%s: %d %s", carrier, a.code, a.reason)
		}
		if a := n.send("POST", "nodes/proxmox/qemu/421/status/start", "",
			carrier); a.reason != "Permission denied - invalid csrf token" {
			t.Errorf("without a CSRF token: %d %s", a.code, a.reason)
		}
		csrf := "CSRFPreventionToken: " + login["CSRFPreventionToken"].(string)
		if a := n.send("POST", "nodes/proxmox/qemu/421/status/stop", "", carrier,
			csrf); a.code != http.StatusOK {
			t.Errorf("with a CSRF token: %d %s", a.code, a.reason)
		}
	}
	for _, r := range n.server.Requests() {
		if r.Params.Get("password") != "" {
			t.Error("the request log has the password")
		}
	}
}

func TestParametersMayComeAsJSON(t *testing.T) {
	n := listen(t, Config{})
	n.server.AddVM(VM{ID: 421})
	a := n.send("PUT", "nodes/proxmox/qemu/421/config", `{"cores":2,"onboot":true}`,
		"Content-Type: application/json")
	if config := n.config("421"); a.code != http.StatusOK || config["cores"] != 2.0 ||
		config["onboot"] != 1.0 {
		t.Errorf("%d %s: %v", a.code, a.reason, config)
	}
}

func TestStoppedTaskHasNoEffect(t *testing.T) {
	n := withImage(t, Config{})
	release := make(chan struct{})
	defer close(release)
	n.server.Fail(Fault{Path: "nodes/*/qemu", Method: "POST", Hold: release})
	upid := n.send("POST", "nodes/proxmox/qemu", order()).data.(string)
	n.send("DELETE", "nodes/proxmox/tasks/"+url.PathEscape(upid), "")
	n.server.Idle()
	if status := n.send("GET", "nodes/proxmox/tasks/"+upid+"/status",
		"").data.(map[string]any); status["exitstatus"] != "received interrupt" {
		t.Errorf("status %v", status)
	}
	if len(n.server.VMs()) != 0 {
		t.Errorf("left: %v", n.server.VMs())
	}
}

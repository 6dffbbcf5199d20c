package proxmox

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	resourcesPath = "cluster/ha/resources"
	rulesPath     = "cluster/ha/rules"
	apart         = "rule=apart&type=resource-affinity&affinity=negative&resources="
)

// pair is a datacenter with VM 421 on proxmox and 422 on pve2, both running.
func pair(t *testing.T) node {
	t.Helper()
	n := listen(t, Config{Nodes: []string{"proxmox", "pve2"}})
	n.server.AddVM(VM{ID: 421, Running: true})
	n.server.AddVM(VM{ID: 422, Running: true, Node: "pve2"})
	return n
}

// must sends a request that has to be accepted.
func (n node) must(method, path, form string) any {
	n.t.Helper()
	a := n.send(method, path, form)
	if a.code != 200 {
		n.t.Fatalf("%s %s: %d %s", method, path, a.code, a.body)
	}
	n.server.Idle()
	return a.data
}

// runs lists the guests that run, with their nodes.
func (n node) runs() (all []string) {
	n.server.Idle()
	for _, v := range n.server.VMs() {
		if v.Running {
			all = append(all, v.Node+"/vm:"+strconv.Itoa(v.ID))
		}
	}
	return all
}

func TestTheHAStackRefusesAsARealOneDoes(t *testing.T) {
	for name, test := range map[string]struct {
		method, path, form string
		reason             string
		version            string
	}{
		"no such resource": {"GET", resourcesPath + "/vm:499", "", "no such resource 'vm:499'", ""},
		"no such guest": {"POST", resourcesPath, "sid=vm:499",
			"resource 'vm:499' does not exist in cluster", ""},
		"an id without a guest": {"GET", resourcesPath + "/499", "",
			"unable to detect SID from VMID - VM/CT 499 does not exist", ""},
		"twice": {"POST", resourcesPath, "sid=vm:421",
			"create resource failed: resource ID 'vm:421' already defined", ""},
		"a group": {"POST", resourcesPath, "sid=vm:422&group=one",
			"invalid parameter 'group': ha groups have been migrated to rules", ""},
		"an update of none": {"PUT", resourcesPath + "/vm:422", "state=started",
			"update resources config failed: no such resource 'vm:422'", ""},
		"no such rule": {"GET", rulesPath + "/other", "", "no such ha rule 'other'", ""},
		"a rule twice": {"POST", rulesPath, strings.Replace(apart, "apart", "web", 1) + "vm:421",
			"create ha rule failed: HA rule 'web' already defined", ""},
		"a rule of a guest without high availability": {"POST", rulesPath, apart + "vm:421,vm:422",
			"create ha rule failed: cannot use unmanaged resource(s) vm:422.", ""},
		"a rule of one": {"POST", rulesPath, apart + "vm:421",
			"create ha rule failed: 400 Rule 'apart' is invalid.", ""},
		"an update of no rule": {"PUT", rulesPath + "/other", "affinity=positive",
			"update HA rules failed: HA rule 'other' does not exist", ""},
		"a release without rules": {"GET", rulesPath, "", "Method 'GET /cluster/ha/rules' not implemented",
			"8.4.1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := listen(t, Config{Version: test.version})
			n.server.AddVM(VM{ID: 421, Running: true, HA: true})
			n.server.AddVM(VM{ID: 422, Running: true})
			n.server.AddRule("web", map[string]string{"type": "resource-affinity", "resources": "vm:421"})
			if a := n.send(test.method, test.path, test.form); a.reason != test.reason {
				t.Errorf("%d %q %s, want %q", a.code, a.reason, a.body, test.reason)
			}
		})
	}
}

// The state of a resource is what its guest is brought to. A stop by a call is a state, too; one that nobody
// asked for is not.
func TestAGuestFollowsTheStateOfItsResource(t *testing.T) {
	n := pair(t)
	n.must("POST", resourcesPath, "sid=vm:421&state=started&max_restart=2")
	state := func(want string) {
		t.Helper()
		is, _ := n.must("GET", resourcesPath+"/vm:421", "").(map[string]any)
		if is["state"] != want || is["max_restart"] != 2.0 {
			t.Errorf("%v, want %s", is, want)
		}
	}
	n.server.PowerOff(421)
	if got := n.runs(); !slices.Contains(got, "proxmox/vm:421") {
		t.Errorf("a guest that has failed stays off: %v", got)
	}
	n.must("POST", "nodes/proxmox/qemu/421/status/stop", "")
	state("stopped")
	if n.server.PowerOff(421); slices.Contains(n.runs(), "proxmox/vm:421") {
		t.Error("a stopped one is started")
	}
	n.must("PUT", resourcesPath+"/vm:421", "state=started")
	state("started")
	if got := n.runs(); !slices.Contains(got, "proxmox/vm:421") {
		t.Errorf("it does not run: %v", got)
	}
	n.must("DELETE", resourcesPath+"/vm:421", "")
	if got := n.runs(); !slices.Contains(got, "proxmox/vm:421") || n.server.VMs()[0].HA {
		t.Errorf("without high availability it goes on: %v", got)
	}
}

func TestARemovedResourceLeavesItsRules(t *testing.T) {
	n := pair(t)
	n.must("POST", resourcesPath, "sid=vm:421")
	n.must("POST", resourcesPath, "sid=vm:422")
	n.must("POST", rulesPath, apart+"vm:422,vm:421")
	members := func(want string) {
		t.Helper()
		if rule, _ := n.must("GET", rulesPath+"/apart", "").(map[string]any); rule["resources"] != want {
			t.Errorf("%v", rule)
		}
	}
	members("vm:421,vm:422")
	n.must("DELETE", resourcesPath+"/vm:421", "")
	members("vm:422")
	n.must("POST", "nodes/pve2/qemu/422/status/stop", "")
	n.must("DELETE", "nodes/pve2/qemu/422?purge=1", "")
	if all := n.server.HAConfig(); len(all) != 0 {
		t.Errorf("%v", slices.Collect(maps.Keys(all)))
	}
	n.must("DELETE", rulesPath+"/apart", "") // as if there had been one
}

// Guests of a node that fails run on others, with their disks on shared storage, and apart if a rule says so.
func TestGuestsOfANodeThatFailsAreRecovered(t *testing.T) {
	for name, test := range map[string]struct {
		disk, rule string
		want       []string
	}{
		"on shared storage": {"ceph:vm-421-disk-0", "", []string{"pve2/vm:421", "pve2/vm:422"}},
		"on the node's own": {"local-lvm:vm-421-disk-0", "", []string{"pve2/vm:422"}},
		"apart from 422": {"ceph:vm-421-disk-0", "vm:421,vm:422",
			[]string{"proxmox/vm:421", "pve2/vm:422"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := listen(t, Config{Nodes: []string{"proxmox", "pve2"}, Storages: []Storage{
				{ID: "ceph", Type: "rbd", Content: []string{"images"}, Shared: true},
				{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}}},
				Durations: map[string]time.Duration{"qmstart": time.Millisecond}})
			n.server.AddVM(VM{ID: 421, Running: true, HA: true,
				Config: map[string]string{"scsi0": test.disk}})
			n.server.AddVM(VM{ID: 422, Running: true, HA: true, Node: "pve2"})
			if test.rule != "" {
				n.must("POST", rulesPath, apart+test.rule)
			}
			n.must("GET", resourcesPath, "")
			n.server.SetOffline("proxmox", true)
			if got := n.runs(); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestOnlyTheWholeDatacenterGivesRightsOnTheHAStack(t *testing.T) {
	n := pair(t)
	n.token = n.limited(machines...)
	for call, want := range map[string]string{
		"GET " + resourcesPath:             "Permission check failed (/, Sys.Audit)",
		"PUT " + resourcesPath + "/vm:421": "Permission check failed (/, Sys.Console)",
		"DELETE " + rulesPath + "/apart":   "Permission check failed (/, Sys.Console)",
	} {
		method, path, _ := strings.Cut(call, " ")
		if a := n.send(method, path, ""); a.code != 403 || a.reason != want {
			t.Errorf("%s: %d %q", call, a.code, a.reason)
		}
	}
}

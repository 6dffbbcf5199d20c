package proxmox

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// machines are the commands that let a token create and delete machines in the pool castle, on local-lvm.
var machines = []string{
	"pveum role add Machines --privs VM.Allocate,VM.Audit,VM.PowerMgmt,VM.Config.CPU,VM.Config.Memory," +
		"VM.Config.Network,VM.Config.Options,VM.Config.Disk,VM.Config.Cloudinit",
	"pveum role add Disks --privs Datastore.AllocateSpace",
	"pveum role add Images --privs Datastore.Audit",
	"pveum role add Network --privs SDN.Use",
	"pveum acl modify /pool/castle --users limited@pve --roles Machines",
	"pveum acl modify /storage/local-lvm --users limited@pve --roles Disks",
	"pveum acl modify /storage/local --users limited@pve --roles Images",
	"pveum acl modify /sdn/zones/localnetwork/vmbr0 --users limited@pve --roles Network",
}

func TestCreateNeedsThePrivilegeOfEachOption(t *testing.T) {
	create := func(t *testing.T, lacks string) answer {
		t.Helper()
		n := withImage(t, Config{})
		var commands []string
		for _, c := range machines {
			commands = append(commands, strings.ReplaceAll(c, lacks, "VM.Console"))
		}
		n.token = n.limited(commands...)
		return n.send("POST", "nodes/proxmox/qemu", order()+"&pool=castle")
	}
	if a := create(t, "nothing"); a.code != 200 {
		t.Fatalf("with all: %d %s", a.code, a.reason)
	}
	for privilege, where := range map[string]string{
		"VM.Allocate": "", "VM.Config.CPU": "/vms/421", "VM.Config.Memory": "/vms/421",
		"VM.Config.Network": "/vms/421", "VM.Config.Options": "/vms/421",
		"Datastore.AllocateSpace": "/storage/local-lvm", "SDN.Use": "/sdn/zones/localnetwork/vmbr0",
		"Datastore.Audit": "/storage/local",
	} {
		want := "Permission check failed (" + where + ", " + privilege + ")"
		switch privilege {
		case "VM.Allocate":
			want = "Permission check failed"
		case "Datastore.Audit":
			want = "Permission check failed (/storage/local, Datastore.AllocateSpace|Datastore.Audit)"
		}
		if a := create(t, privilege); a.code != 403 || a.reason != want {
			t.Errorf("without %s: %d %s", privilege, a.code, a.reason)
		}
	}
}

func TestATokenOfAPoolCannotTouchOthers(t *testing.T) {
	n := withImage(t, Config{})
	n.server.AddVM(VM{ID: 100, Name: "prod", Pool: "prod", Running: true,
		Config: map[string]string{"scsi0": "local-lvm:vm-100-disk-0,size=8G"}})
	before, admin := n.server.VMs()[0], n.token
	upid := n.send("POST", "nodes/proxmox/qemu/100/status/stop", "").data.(string)
	n.server.Idle()
	n.task("POST", "nodes/proxmox/qemu/100/status/start", "")
	before.Started = n.server.VMs()[0].Started

	n.token = n.limited(machines...)
	const guest = "nodes/proxmox/qemu/100"
	for call, privilege := range map[string]string{
		"GET " + guest + "/config": "VM.Audit", "GET " + guest + "/status/current": "VM.Audit",
		"PUT " + guest + "/resize": "VM.Config.Disk", "DELETE " + guest: "VM.Allocate",
		"POST " + guest + "/status/stop": "VM.PowerMgmt",
		"PUT " + guest + "/config": "VM.Config.Disk|VM.Config.CDROM|VM.Config.CPU|VM.Config.Memory|" +
			"VM.Config.Network|VM.Config.HWType|VM.Config.Options|VM.Config.Cloudinit",
	} {
		method, path, _ := strings.Cut(call, " ")
		want := "Permission check failed (/vms/100, " + privilege + ")"
		if a := n.send(method, path, ""); a.code != 403 || a.reason != want {
			t.Errorf("%s: %d %s", call, a.code, a.reason)
		}
	}
	for call, want := range map[string]string{
		"POST nodes/proxmox/storage/local/download-url": "(/storage/local, " +
			"Datastore.AllocateTemplate)",
		"GET nodes/proxmox/query-url-metadata?url=https://x":        "",
		"DELETE nodes/proxmox/storage/local/content/" + imageVolume: "(/storage/local, Datastore.Allocate)",
		"GET nodes/proxmox/storage/local-lvm/content/vm-100-disk-0": "(/storage/local-lvm, " +
			"Datastore.Audit)",
		"GET nodes/proxmox/tasks/" + upid + "/status": "(/nodes/proxmox, Sys.Audit)",
		"DELETE cluster/ha/resources/100":             "(/, Sys.Console)",
	} {
		method, path, _ := strings.Cut(call, " ")
		a := n.send(method, path, "")
		if want = strings.TrimSpace("Permission check failed " + want); a.code != 403 || a.reason != want {
			t.Errorf("%s: %d %s", call, a.code, a.reason)
		}
	}
	for _, list := range []string{"cluster/resources?type=vm", "nodes/proxmox/qemu", "pools",
		"nodes/proxmox/storage/local-lvm/content", "nodes/proxmox/tasks"} {
		if rows := n.send("GET", list, "").data.([]any); len(rows) > 0 {
			t.Errorf("%s lists %v", list, rows)
		}
	}
	if after := n.server.VMs()[0]; !reflect.DeepEqual(before, after) {
		t.Errorf("the machine was %+v\nand is   %+v", before, after)
	}
	n.token = admin
	if rows := n.send("GET", "cluster/resources?type=vm", "").data.([]any); len(rows) != 1 {
		t.Errorf("the administrator sees %v", rows)
	}
}

func TestPermissionsAreTheTokensEffectiveOnes(t *testing.T) {
	n := listen(t, Config{})
	n.server.AddVM(VM{ID: 421, Pool: "castle"})
	n.server.AddVM(VM{ID: 422, Pool: "castle", Hidden: true})
	for _, command := range append(machines[:5:5], "pveum user token add limited@pve separate",
		"pveum role add Power --privs VM.PowerMgmt,VM.Audit,VM.Console",
		"pveum acl modify /pool/castle --tokens limited@pve!separate --roles Power",
		"pveum acl modify /vms/422 --users limited@pve --roles NoAccess",
		"pveum acl modify /storage --users limited@pve --roles Administrator --propagate 0") {
		if command == machines[0] {
			n.limited()
		}
		if out, err := n.server.Pveum(command); err != nil {
			t.Fatal(err)
		} else if out != "" {
			n.token = "limited@pve!separate=" + out
		}
	}
	for path, want := range map[string]string{
		"/vms/421": "VM.Audit VM.PowerMgmt", "/vms/422": "", "/vms": "",
		"/pool/castle": "VM.Audit VM.PowerMgmt", "/storage": "", "/storage/local": "",
	} {
		of, _ := n.send("GET", "access/permissions?path="+path, "").data.(map[string]any)
		has, _ := of[path].(map[string]any)
		if got := strings.Join(slices.Sorted(maps.Keys(has)), " "); got != want {
			t.Errorf("on %s: %q, want %q", path, got, want)
		}
	}
	all, _ := n.send("GET", "access/permissions", "").data.(map[string]any)
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"/pool/castle", "/vms/421"}) {
		t.Errorf("rights on %v", got)
	}
	if on := all["/vms/421"].(map[string]any); on["VM.Audit"] != 0.0 {
		t.Errorf("a pool's right propagates: %v", on)
	}
}

// TestTagsAreCheckedBeforeThePool is what qemu-server does since 9.2: the machine is not in its pool yet.
func TestTagsAreCheckedBeforeThePool(t *testing.T) {
	n := withImage(t, Config{Version: "9.2.1"})
	n.token = n.limited(machines...)
	create := func() string {
		exit, _ := n.task("POST", "nodes/proxmox/qemu", order()+"&pool=castle")
		return exit
	}
	want := "unable to create VM 421 - Permission check failed (/vms/421, VM.Config.Options)"
	if exit := create(); exit != want || len(n.server.VMs()) != 0 {
		t.Errorf("%q, left %v", exit, n.server.VMs())
	}
	for _, command := range []string{"pveum role add Tags --privs VM.Config.Options",
		"pveum acl modify /vms/421 --users limited@pve --roles Tags"} {
		if _, err := n.server.Pveum(command); err != nil {
			t.Fatal(err)
		}
	}
	if exit := create(); exit != "OK" {
		t.Errorf("with the right on the machine: %q", exit)
	}
}

func TestMachinesMoveBetweenPools(t *testing.T) {
	n := withImage(t, Config{})
	n.server.AddVM(VM{ID: 100, Name: "blue-cp-01"})
	n.limited("pveum pool add blue", "pveum pool add green")
	change := func(parameters string) answer { return n.send("PUT", "pools?poolid=blue", parameters) }
	if a := change("vms=100"); a.code != 200 || n.server.VMs()[0].Pool != "blue" {
		t.Fatalf("add: %d %s, pool %q", a.code, a.reason, n.server.VMs()[0].Pool)
	}
	const taken = "VM 100 belongs already to pool 'blue' and 'allow-move' is not set"
	if a := n.send("PUT", "pools?poolid=green", "vms=100"); a.code != 500 || a.reason != taken {
		t.Errorf("add to another: %d %s", a.code, a.reason)
	}
	admin := n.token
	const role = "pveum acl modify /pool/blue --users limited@pve --roles Machines"
	n.token = n.limited(append(slices.Clone(machines), role)...)
	const want = "Permission check failed (/pool/blue, Pool.Allocate)"
	if a := change("vms=100&delete=1"); a.code != 403 || a.reason != want {
		t.Errorf("remove without Pool.Allocate: %d %s", a.code, a.reason)
	}
	n.token = admin
	if a := change("vms=100&delete=1"); a.code != 200 || n.server.VMs()[0].Pool != "" {
		t.Errorf("remove: %d %s, pool %q", a.code, a.reason, n.server.VMs()[0].Pool)
	}
}

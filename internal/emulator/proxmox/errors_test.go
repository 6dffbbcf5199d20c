package proxmox

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRefusalsAreThoseOfARealNode(t *testing.T) {
	const guest = "nodes/proxmox/qemu/421"
	for name, test := range map[string]struct {
		config  Config
		limited bool // the token may do everything in the pool castle, and nothing else
		vms     []VM
		offline bool
		token   string // "none" sends no credentials
		method  string
		path    string
		form    string
		code    int
		reason  string
		param   string // "name: text"
		empty   bool   // the body is empty
	}{
		"no credentials": {token: "none", method: "GET", path: "version", code: 401, reason: "No ticket",
			empty: true},
		"unknown token": {token: "x@pve!y=z", method: "GET", path: "version", code: 401,
			reason: "Authentication failed!", empty: true},
		"wrong token, 9.0": {config: Config{Version: "9.0.5"}, token: "castle@pve!castle=z", method: "GET",
			path: "version", code: 401, reason: "invalid token value!", empty: true},
		"unknown token, 8": {config: Config{Version: "8.4.1"}, token: "x@pve!y=z", method: "GET",
			path: "version", code: 401, reason: "no such token 'y' for user 'x@pve'", empty: true},
		"wrong password": {method: "POST", path: "access/ticket", form: "username=root@pam&password=x",
			code: 401, reason: "authentication failure"},
		"unknown route": {method: "GET", path: "nodes/proxmox/x", code: 501,
			reason: "Method 'GET /nodes/proxmox/x' not implemented"},
		"a body on a DELETE": {method: "DELETE", path: guest, form: "purge=1", code: 501,
			reason: "Unexpected content for method 'DELETE'", empty: true},
		"bad id": {method: "GET", path: "nodes/proxmox/qemu/abc/config", code: 400,
			reason: "Parameter verification failed.",
			param:  "vmid: invalid format - value does not look like a valid VM ID\n"},
		"contradicting param": {method: "POST", path: guest + "/status/stop", form: "vmid=422", code: 400,
			reason: "Parameter verification failed.",
			param:  "vmid: duplicate parameter (already defined in URI) with conflicting values!"},
		"root's own option": {vms: []VM{{ID: 421}}, method: "POST", path: guest + "/status/stop",
			form: "skiplock=1", code: 400, reason: "Parameter verification failed.",
			param: "skiplock: Only root may use this option."},
		"create, id taken": {vms: []VM{{ID: 421}}, method: "POST", path: "nodes/proxmox/qemu",
			form: "vmid=421", code: 500, reason: "unable to create VM 421 - VM 421 already exists on node " +
				"'proxmox'"},
		"create, id taken by a container": {
			vms: []VM{{ID: 421, Kind: "lxc"}}, method: "POST", path: "nodes/proxmox/qemu", form: "vmid=421",
			code: 500, reason: "unable to create VM 421 - CT 421 already exists on node 'proxmox'",
		},
		"create, unknown option": {method: "POST", path: "nodes/proxmox/qemu", form: "vmid=421&colour=blue",
			code: 400, reason: "Parameter verification failed.",
			param: "colour: property is not defined in schema and the schema does not allow additional " +
				"properties\n"},
		"create, bad name": {method: "POST", path: "nodes/proxmox/qemu", form: "vmid=421&name=a_b",
			code: 400, reason: "Parameter verification failed.",
			param: "name: invalid format - value does not look like a valid DNS name\n"},
		"create, image missing": {method: "POST", path: "nodes/proxmox/qemu",
			form: "vmid=421&scsi0=local-lvm:0,import-from=local:import/x.qcow2", code: 500,
			reason: "could not get size of local:import/x.qcow2"},
		"create, image is an ISO": {
			method: "POST", path: "nodes/proxmox/qemu",
			form: "vmid=421&scsi0=local-lvm:0,import-from=local:iso/x.img", code: 400,
			reason: "Parameter verification failed.",
			param:  "scsi0: local:iso/x.img has wrong type 'iso' - needs to be 'images' or 'import'",
		},
		"create, unknown storage": {method: "POST", path: "nodes/proxmox/qemu",
			form: "vmid=421&scsi0=tank:20", code: 500, reason: "storage 'tank' does not exist"},
		"create outside the pool": {limited: true, method: "POST",
			path: "nodes/proxmox/qemu", form: "vmid=421", code: 403, reason: "Permission check failed"},
		"nextid, id taken": {vms: []VM{{ID: 421, Hidden: true}}, method: "GET",
			path: "cluster/nextid?vmid=421", code: 400, reason: "Parameter verification failed.",
			param: "vmid: VM 421 already exists"},
		"VM missing": {method: "GET", path: guest + "/config", code: 500,
			reason: "Configuration file 'nodes/proxmox/qemu-server/421.conf' does not exist"},
		"VM on another node": {config: Config{Nodes: []string{"proxmox", "pve2"}},
			vms: []VM{{ID: 421, Node: "pve2"}}, method: "GET", path: guest + "/config", code: 500,
			reason: "Configuration file 'nodes/proxmox/qemu-server/421.conf' does not exist"},
		"VM missing, pool token": {limited: true, method: "GET", path: guest + "/config",
			code: 403, reason: "Permission check failed (/vms/421, VM.Audit)"},
		"VM hidden": {vms: []VM{{ID: 421, Hidden: true}}, method: "DELETE", path: guest,
			code: 403, reason: "Permission check failed (/vms/421, VM.Allocate)"},
		"destroy, protected": {vms: []VM{{ID: 421, Protection: true}}, method: "DELETE", path: guest,
			code: 500, reason: "can't remove VM 421 - protection mode enabled"},
		"destroy, running": {vms: []VM{{ID: 421, Running: true}}, method: "DELETE", path: guest,
			code: 500, reason: "VM 421 is running - destroy failed"},
		"destroy, HA": {vms: []VM{{ID: 421, HA: true}}, method: "DELETE", path: guest,
			code: 500, reason: "unable to remove VM 421 - used in HA resources and purge parameter not set."},
		"destroy, replicated": {vms: []VM{{ID: 421, Replicated: true}}, method: "DELETE", path: guest,
			code: 500, reason: "There is a replication job '421-0' for guest '421' - Please remove that " +
				"first."},
		"config, locked": {vms: []VM{{ID: 421, Lock: "backup"}}, method: "PUT",
			path: guest + "/config", form: "cores=2", code: 500, reason: "VM is locked (backup)"},
		"config, changed meanwhile": {vms: []VM{{ID: 421}}, method: "PUT", path: guest + "/config",
			form: "cores=2&digest=0", code: 500,
			reason: "detected modified configuration - file changed by other user? Try again."},
		"HA delete, not managed": {vms: []VM{{ID: 421}}, method: "DELETE",
			path: "cluster/ha/resources/421", code: 500,
			reason: "cannot delete service 'vm:421', not HA managed!"},
		"agent off": {vms: []VM{{ID: 421, Running: true}}, method: "POST",
			path: guest + "/agent/ping", code: 500, reason: "No QEMU guest agent configured"},
		"agent, VM stopped": {vms: []VM{{ID: 421, Config: map[string]string{"agent": "1"}}},
			method: "POST", path: guest + "/agent/ping", code: 500, reason: "VM 421 is not running"},
		"agent, not installed": {vms: []VM{{ID: 421, Running: true, Config: map[string]string{"agent": "1"}}},
			config: Config{Agent: func(VM) ([]netip.Prefix, bool) { return nil, false }},
			method: "GET", path: guest + "/agent/network-get-interfaces", code: 500,
			reason: "QEMU guest agent is not running"},
		"no UPID": {method: "GET", path: "nodes/proxmox/tasks/abc/status", code: 400,
			reason: "Parameter verification failed.", param: "upid: unable to parse worker upid"},
		"unknown UPID": {method: "GET",
			path: "nodes/proxmox/tasks/UPID:proxmox:00001000:00061000:6B000000:qmstart:421:root@pam:/status",
			code: 400, reason: "Parameter verification failed.", param: "upid: no such task"},
		"node offline": {offline: true, method: "GET", path: guest + "/config", code: 595,
			reason: "No route to host", empty: true},
		"unknown node": {method: "GET", path: "nodes/foo/qemu", code: 500,
			reason: "hostname lookup 'foo' failed - failed to get address info for: foo: Name or service " +
				"not known"},
		"volume missing": {method: "GET",
			path: "nodes/proxmox/storage/local-lvm/content/local-lvm:vm-421-disk-0", code: 500,
			reason: "no such logical volume pve/vm-421-disk-0"},
		"download, wrong extension": {method: "POST", path: "nodes/proxmox/storage/local/download-url",
			form: "content=import&filename=talos.raw.xz&url=https://x/y", code: 400,
			reason: "Parameter verification failed.", param: "filename: invalid filename or wrong extension"},
		"download onto LVM": {method: "POST", path: "nodes/proxmox/storage/local-lvm/download-url",
			form: "content=import&filename=talos.raw&url=https://x/y", code: 500,
			reason: "can't upload to storage type 'lvmthin', not a file based storage!"},
	} {
		t.Run(name, func(t *testing.T) {
			n := listen(t, test.config)
			for _, vm := range test.vms {
				n.server.AddVM(vm)
			}
			if test.limited {
				n.token = n.limited("pveum acl modify /pool/castle --users limited@pve --roles Administrator")
			}
			n.server.SetOffline("proxmox", test.offline)
			switch test.token {
			case "":
			case "none":
				n.token = ""
			default:
				n.token = test.token
			}
			a := n.send(test.method, test.path, test.form)
			if a.code != test.code || a.reason != test.reason {
				t.Errorf("got  %d %s\nwant %d %s", a.code, a.reason, test.code, test.reason)
			}
			if test.empty {
				if a.body != "" {
					t.Errorf("body %q, want none", a.body)
				}
				return
			}
			if a.message != test.reason+"\n" {
				t.Errorf("message %q", a.message)
			}
			param, text, _ := strings.Cut(test.param, ": ")
			if a.errors[param] != text || (test.param == "" && len(a.errors) > 0) {
				t.Errorf("errors %q, want %q", a.errors, test.param)
			}
			if recorded := n.server.Requests()[0]; recorded.Status != test.code ||
				recorded.Error != test.reason {
				t.Errorf("recorded as %d %s", recorded.Status, recorded.Error)
			}
		})
	}
}

// These errors come only after the call was accepted.
func TestTasksFailAsOnARealNode(t *testing.T) {
	const guest = "nodes/proxmox/qemu/421"
	disk := map[string]string{"scsi0": "local-lvm:vm-421-disk-0,size=20G"}
	for name, test := range map[string]struct {
		vm           VM
		fault        Fault
		method, path string
		form         string
		exit         string
	}{
		"destroy, locked": {vm: VM{Lock: "backup"}, method: "DELETE", path: guest,
			exit: "VM is locked (backup)"},
		"stop, locked": {vm: VM{Lock: "backup", Running: true}, method: "POST",
			path: guest + "/status/stop", exit: "VM is locked (backup)"},
		"start, locked": {vm: VM{Lock: "create"}, method: "POST", path: guest + "/status/start",
			exit: "VM is locked (create)"},
		"start of a running": {vm: VM{Running: true}, method: "POST", path: guest + "/status/start",
			exit: "VM 421 already running"},
		"start of a template": {vm: VM{Template: true}, method: "POST", path: guest + "/status/start",
			exit: "you can't start a vm if it's a template"},
		"stop of a stopped": {method: "POST", path: guest + "/status/stop", exit: "OK"},
		"shrinking": {vm: VM{Config: disk}, method: "PUT", path: guest + "/resize",
			form: "disk=scsi0&size=10G", exit: "shrinking disks is not supported"},
		"a fault on request": {
			fault: Fault{Path: "nodes/*/qemu/*/status/start",
				Task: "can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout"},
			method: "POST", path: guest + "/status/start",
			exit: "can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout",
		},
		"download over an existing file": {
			method: "POST", path: "nodes/proxmox/storage/local/download-url",
			form: "content=import&filename=old.qcow2&url=https://x/y",
			exit: "refusing to override existing file '/var/lib/vz/import/old.qcow2'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := listen(t, Config{})
			n.server.AddDisk(Disk{Volume: "local:import/old.qcow2", Content: "import"})
			test.vm.ID = 421
			n.server.AddVM(test.vm)
			if test.fault.Path != "" {
				n.server.Fail(test.fault)
			}
			before := n.server.VMs()[0]
			exit, log := n.task(test.method, test.path, test.form)
			if exit != test.exit {
				t.Errorf("exit status %q, want %q", exit, test.exit)
			}
			last := "TASK ERROR: " + test.exit
			if test.exit == "OK" {
				last = "TASK OK"
			}
			if len(log) == 0 || log[len(log)-1] != last {
				t.Errorf("log %q", log)
			}
			if after := n.server.VMs()[0]; after.Running != before.Running || after.Lock != before.Lock ||
				after.Config["scsi0"] != before.Config["scsi0"] {
				t.Errorf("the VM changed: %+v", after)
			}
		})
	}
}

func TestBefore84OnlyTheReasonPhraseHasTheText(t *testing.T) {
	n := listen(t, Config{Version: "8.3.5"})
	a := n.send("GET", "nodes/proxmox/qemu/421/config", "")
	if a.body != `{"data":null}` || a.reason != "Configuration file 'nodes/proxmox/qemu-server/421.conf' "+
		"does not exist" {
		t.Errorf("%s: %s", a.reason, a.body)
	}
}

package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

const (
	proxmoxTokenID = "castle@pve!test="
	proxmoxToken   = proxmoxTokenID + "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
)

type datacenterKey struct{}

// datacenter is one script's Proxmox.
type datacenter struct {
	proxmox *emulator.Server
	server  *httptest.Server
	held    chan struct{}
	once    sync.Once
	added   int
	token   string
	liar    liar
	intrude atomic.Pointer[intruder]
}

// newDatacenter starts a datacenter with the node proxmox, and others.
func newDatacenter(defers func(func()), others ...string) *datacenter {
	d := &datacenter{
		proxmox: emulator.New(emulator.Config{Token: proxmoxToken, Duration: 10 * time.Millisecond,
			Nodes: append([]string{"proxmox"}, others...),
			Storages: []emulator.Storage{
				{ID: "local", Type: "dir", Content: []string{"images", "import", "iso", "snippets"},
					Path: "/var/lib/vz"},
				{ID: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}},
				{ID: "castle-images", Type: "dir", Content: []string{"import"},
					Path: "/var/lib/castle-images"},
				{ID: "nfs", Type: "nfs", Content: []string{"import"}, Path: "/mnt/pve/nfs", Shared: true},
			}}),
		held:  make(chan struct{}),
		token: proxmoxToken,
	}
	d.server = httptest.NewUnstartedServer(nil)
	d.server.Config = d.proxmox.HTTPServer()
	d.server.Config.Handler = d.liar.front(d.raced(d.server.Config.Handler))
	d.server.StartTLS()
	defers(func() { d.release(); d.server.Close(); d.proxmox.Close() })
	return d
}

// snapshot takes one of a VM, with its memory.
func (d *datacenter) snapshot(ts *testscript.TestScript, id, name string) {
	address := d.server.URL + "/api2/json/nodes/proxmox/qemu/" + id + "/snapshot"
	request, err := http.NewRequest(http.MethodPost, address,
		strings.NewReader("vmstate=1&snapname="+name))
	ts.Check(err)
	request.Header.Set("Authorization", "PVEAPIToken="+proxmoxToken)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := d.server.Client().Do(request)
	ts.Check(err)
	ts.Check(response.Body.Close())
	d.proxmox.Idle()
}

func (d *datacenter) release() { d.once.Do(func() { close(d.held) }) }

// environ is what castle and the provider need to reach the datacenter; its CA
// is written to a file in dir.
func (d *datacenter) environ(dir string) (map[string]string, error) {
	ca := filepath.Join(dir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.server.Certificate().Raw})
	return map[string]string{
		"PROXMOX": d.server.URL, "SSL_CERT_FILE": ca, "TF_VAR_proxmox_endpoint": d.server.URL,
		"TF_VAR_proxmox_api_token": proxmoxToken,
	}, os.WriteFile(ca, block, 0o600)
}

// proxmox acts on the script's datacenter:
//
//	proxmox start [NODE]      starts a new one, with any number of nodes beside the node proxmox
//	proxmox stop              stops it; requests get no answer
//	proxmox disk VOLUME [ID]  adds a file, or a disk of this VM
//	proxmox free VOLUME       removes the volume
//	proxmox add ID NAME [TAG] adds a running foreign VM with any number of tags; uuid=UUID is its uuid
//	proxmox race WHEN ID NAME [TAG] adds it when castle's next VM is created, or its image is fetched
//	proxmox show ID           prints the VM's configuration to stdout, one option a line
//	proxmox twin ID           replaces the VM by one with another uuid; again: restores the first one
//	proxmox set ID FORM       changes the VM's options by hand: delete=scsi1, scsi1=local-lvm:vm-421-disk-1
//	proxmox migrate ID NODE   moves the VM and its disks to another node
//	proxmox copy ID NEW       adds a VM with the options of this one, as a restored backup has them
//	proxmox snapshot ID NAME  takes a snapshot of the VM with its memory
//	proxmox remove ID         removes the VM
//	proxmox hold              keeps created VMs under construction
//	proxmox hold-deletions    keeps deletions of files running
//	proxmox watched           waits until a client lists the running tasks while one is held
//	proxmox wait N            waits for N requests to create a VM
//	proxmox release           lets held tasks continue
//	proxmox locked ID start   fails the VM's next start, or stop, because its lock is taken
//	proxmox lock ID NAME      locks the VM: backup, migrate, …
//	proxmox unlock ID         unlocks the VM
//	proxmox locking ID        locks the VM after it has stopped
//	proxmox protect ID        sets the VM's protection, so that it cannot be removed
//	proxmox unprotect ID      clears the VM's protection
//	proxmox off               powers off all VMs
//	proxmox token SECRET      changes the secret of the API token
//	proxmox secret FILE       writes the valid API token to a file
//	proxmox drop              creates the next VM, but drops the response
//	proxmox lie SEED          spoils one answer in five from now on
//	proxmox honest            ends that, and fails if fewer than ten were spoiled
//	proxmox break             fails each request to create a VM
//	proxmox refused N         waits until it has refused N such requests
//	proxmox limit CLUSTER     makes the token of docs/proxmox.md for a cluster and sets it in TF_VAR_…
//	proxmox intrude ID NAME [AFTER] adds a foreign VM right before the request to create a VM with this id,
//	                          and after the VM with the id AFTER was created
//	proxmox untouched ID      asserts that this VM is still as it was then
//	proxmox list              prints VMs and volumes to stdout, one a line
//	proxmox created           prints the number of VM creations to stdout
func proxmox(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: proxmox start|stop|disk|free|add|race|show|" +
			"twin|set|migrate|copy|snapshot|remove|hold|hold-deletions|watched|wait|" +
			"release|locked|lock|locking|unlock|protect|unprotect|off|" +
			"token|secret|drop|lie|honest|break|refused|limit|intrude|untouched|list|created")
	}
	slot := ts.Value(datacenterKey{}).(**datacenter)
	if args[0] == "start" {
		*slot = newDatacenter(ts.Defer, args[1:]...)
		environ, err := (*slot).environ(ts.Getenv("WORK"))
		ts.Check(err)
		for name, value := range environ {
			ts.Setenv(name, value)
		}
		return
	}
	d := *slot
	number := func() int {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		return n
	}
	switch args[0] {
	case "stop":
		d.server.Close()
	case "disk":
		disk := emulator.Disk{Volume: args[1], Content: contentOf(args[1])}
		if len(args) > 2 {
			owner, err := strconv.Atoi(args[2])
			ts.Check(err)
			disk.Owner, disk.Content = owner, "images"
		}
		d.proxmox.AddDisk(disk)
	case "free":
		d.proxmox.RemoveDisk("proxmox", args[1])
	case "add":
		d.proxmox.AddVM(d.foreign(number(), args[2], args[3:]))
	case "race":
		id, err := strconv.Atoi(args[2])
		ts.Check(err)
		when := map[string]string{"create": "nodes/*/qemu", "fetch": "nodes/*/storage/*/download-url"}
		vm := d.foreign(id, args[3], args[4:])
		vm.Config["scsi0"] = fmt.Sprintf("local-lvm:vm-%d-disk-0,size=8G", id)
		d.proxmox.Fail(emulator.Fault{Method: "POST", Path: when[args[1]], Times: 1, Before: &vm})
	case "show":
		for _, vm := range d.proxmox.VMs() {
			for _, option := range slices.Sorted(maps.Keys(vm.Config)) {
				if vm.ID == number() {
					fmt.Fprintf(ts.Stdout(), "%s: %s\n", option, vm.Config[option])
				}
			}
		}
	case "twin":
		for _, vm := range d.proxmox.VMs() {
			if uuid := vm.Config["smbios1"]; vm.ID == number() {
				vm.Config["smbios1"] = strings.Replace(strings.Replace(uuid, "uuid=", "uuid=-", 1),
					"uuid=--", "uuid=", 1)
				d.proxmox.AddVM(vm)
			}
		}
	case "set":
		ts.Check(d.set(args[1], args[2]))
	case "migrate":
		d.proxmox.Migrate(number(), args[2])
	case "copy":
		for _, vm := range d.proxmox.VMs() {
			if vm.ID == number() {
				id, err := strconv.Atoi(args[2])
				ts.Check(err)
				vm.ID, vm.Running = id, false
				d.proxmox.AddVM(vm)
			}
		}
	case "snapshot":
		d.snapshot(ts, args[1], args[2])
	case "remove":
		d.proxmox.RemoveVM(number())
	case "hold":
		d.proxmox.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Hold: d.held})
	case "hold-deletions":
		d.proxmox.Fail(emulator.Fault{Method: "DELETE", Path: "nodes/*/storage/*/content/*/*", Hold: d.held})
	case "watched":
		if !eventually(time.Minute, 10*time.Millisecond, d.watched) {
			ts.Fatalf("nobody asked for running tasks")
		}
	case "wait":
		d.await(ts, http.StatusOK, number())
	case "release":
		d.release()
		d.proxmox.Idle()
	case "locked":
		d.proxmox.Fail(emulator.Fault{
			Method: "POST", Path: fmt.Sprintf("nodes/*/qemu/%d/status/%s", number(), args[2]), Times: 1,
			Task: fmt.Sprintf("can't lock file '/var/lock/qemu-server/lock-%d.conf' - got timeout", number()),
		})
	case "lock":
		d.proxmox.SetLock(number(), args[2])
	case "locking":
		d.proxmox.Fail(emulator.Fault{Method: "DELETE",
			Path: fmt.Sprintf("nodes/*/qemu/%d", number()), Times: 1,
			Lock: "backup"})
	case "unlock":
		d.proxmox.SetLock(number(), "")
	case "protect", "unprotect":
		d.proxmox.SetProtection(number(), args[0] == "protect")
	case "off":
		for _, vm := range d.proxmox.VMs() {
			d.proxmox.PowerOff(vm.ID)
		}
	case "token":
		d.token = proxmoxTokenID + args[1]
		d.proxmox.SetToken(d.token)
	case "secret":
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(d.token), 0o600))
	case "drop":
		d.proxmox.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Times: 1, Drop: true})
	case "lie":
		d.liar.start(uint64(number()))
	case "honest":
		if lies := d.liar.stop(); lies < 10 {
			ts.Fatalf("only %d answers were spoiled", lies)
		}
	case "break":
		d.proxmox.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Code: timedOut,
			Text: "Connection timed out"})
	case "refused":
		d.await(ts, timedOut, number())
	case "limit":
		token, err := d.limit(args[1])
		ts.Check(err)
		ts.Setenv("TF_VAR_proxmox_api_token", token)
	case "intrude":
		i := &intruder{vm: emulator.VM{ID: number(), Name: args[2], Running: true,
			Started: time.Now(), Config: map[string]string{
				"scsi0": fmt.Sprintf("local-lvm:vm-%s-disk-0,size=8G", args[1]), "memory": "8192",
				"net0": "virtio=BC:24:11:00:00:99,bridge=vmbr0",
			}}}
		if len(args) > 3 {
			after, err := strconv.Atoi(args[3])
			ts.Check(err)
			i.after = after
		}
		d.intrude.Store(i)
	case "untouched":
		i := d.intrude.Load()
		d.proxmox.Idle()
		if now := d.state(number()); len(i.as) != 2 || !slices.Equal(i.as, now) {
			ts.Fatalf("VM %s was %q and is %q", args[1], i.as, now)
		}
	case "list":
		d.proxmox.Idle()
		var lines []string
		for _, vm := range d.proxmox.VMs() {
			lines = append(lines, fmt.Sprintf("VM %d %s running=%v %v", vm.ID, vm.Name, vm.Running, vm.Tags))
		}
		for _, disk := range d.proxmox.Disks() {
			lines = append(lines, "volume "+disk.Volume)
		}
		_, err := fmt.Fprintln(ts.Stdout(), strings.Join(lines, "\n"))
		ts.Check(err)
	case "created":
		_, err := fmt.Fprintln(ts.Stdout(), d.creations(http.StatusOK))
		ts.Check(err)
	default:
		ts.Fatalf("proxmox: unknown %q", args[0])
	}
}

// set changes options of a VM through the API.
func (d *datacenter) set(id, form string) error {
	url := d.server.URL + "/api2/json/nodes/proxmox/qemu/" + id + "/config"
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, url, strings.NewReader(form))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "PVEAPIToken="+d.token)
	response, err := d.server.Client().Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("set %s of VM %s: %s", form, id, response.Status)
	}
	return nil
}

// foreign is a running VM that castle did not make, with an address and an identity of its own.
func (d *datacenter) foreign(id int, name string, tags []string) emulator.VM {
	d.added++
	smbios := fmt.Sprintf("uuid=00000000-0000-4000-8000-%012d", d.added)
	isUUID := func(tag string) bool { return strings.HasPrefix(tag, "uuid=") }
	if i := slices.IndexFunc(tags, isUUID); i >= 0 {
		smbios = tags[i]
	}
	return emulator.VM{ID: id, Name: name, Tags: slices.DeleteFunc(tags, isUUID), Running: true,
		Config: map[string]string{
			"net0":    fmt.Sprintf("virtio=BC:24:11:00:00:%02X,bridge=vmbr0", d.added),
			"smbios1": smbios,
		}}
}

// watched reports whether a client has listed the running tasks twice since a file
// deletion began. After the first time, the client has reported the task.
func (d *datacenter) watched() bool {
	deleting, asked := false, 0
	for _, r := range d.proxmox.Requests() {
		deleting = deleting || r.Method == "DELETE" && strings.Contains(r.Path, "/content/")
		if deleting && r.Method == "GET" && strings.HasSuffix(r.Path, "/tasks") &&
			r.Params.Get("vmid") == "" {
			asked++
		}
	}
	return asked > 1
}

// timedOut is Proxmox' own status for a node that does not answer in time.
const timedOut = 596

// await waits for this many requests to create a VM that got this status.
func (d *datacenter) await(ts *testscript.TestScript, status, n int) {
	if !eventually(time.Minute, 10*time.Millisecond, func() bool { return d.creations(status) >= n }) {
		ts.Fatalf("only %d VMs were asked for with status %d", d.creations(status), status)
	}
}

func (d *datacenter) creations(status int) int {
	n := 0
	for _, r := range d.proxmox.Requests() {
		if r.Method == "POST" && strings.HasSuffix(r.Path, "/qemu") && r.Status == status {
			n++
		}
	}
	return n
}

// contentOf is the content type of a volume: local:import/x is an import.
func contentOf(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	if content, _, file := strings.Cut(name, "/"); file {
		return content
	}
	return "images"
}

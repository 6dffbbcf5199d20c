package proxmox

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

const mac = "BC:24:11:00:00:21"

// state returns the state of one machine with one disk, its image and a snippet.
func state() []gate.Known {
	return []gate.Known{
		{Address: `proxmox_virtual_environment_vm.node["cp-01"]`, Type: "proxmox_virtual_environment_vm",
			Attributes: map[string]any{
				"vm_id": float64(421), "name": "blue-cp-01", "node_name": "proxmox",
				"mac_addresses": []any{strings.ToLower(mac)},
				"disk": []any{
					map[string]any{"datastore_id": "local-lvm", "path_in_datastore": "vm-421-disk-0"},
					map[string]any{"datastore_id": "local-lvm",
						"path_in_datastore": "vm-900-disk-0"}, // somebody else's, attached
				},
			}},
		{Type: "proxmox_virtual_environment_download_file",
			Attributes: map[string]any{"id": "local:import/blue-talos-v1.13.0.qcow2",
				"node_name": "proxmox"}},
		{Type: "proxmox_virtual_environment_file",
			Attributes: map[string]any{"id": "local:snippets/blue.yaml", "node_name": "proxmox"}},
		{Type: "infisical_secret", Attributes: map[string]any{"id": "x"}},
	}
}

func machine421() emulator.VM {
	return emulator.VM{ID: 421, Name: "blue-cp-01", Running: true,
		Config: map[string]string{"net0": "virtio=" + mac + ",bridge=vmbr0"}}
}

// ask returns the remaining objects as "kind id: reason", and the deleted ones as "kind id".
func ask(t *testing.T, d datacenter, s Search, owned []platform.Object) (left, gone []string) {
	t.Helper()
	if s.Client == nil {
		s.Client = d.client(t)
	}
	objects, err := s.Gone(soon(t), owned, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range objects {
		if x.Gone {
			gone = append(gone, x.Kind+" "+x.ID)
		} else {
			left = append(left, x.Kind+" "+x.ID+": "+x.Reason)
		}
	}
	return left, gone
}

func TestGoneChecksEveryObjectOfAState(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	left, gone := ask(t, d, Search{}, values.ObjectsOf(state()))
	want := []string{"machine 421", "disk local-lvm:vm-421-disk-0",
		"image local:import/blue-talos-v1.13.0.qcow2", "snippet local:snippets/blue.yaml"}
	if len(left) > 0 || !slices.Equal(gone, want) {
		t.Errorf("left %q, gone %q, want %q", left, gone, want)
	}
}

func TestGoneReturnsTheFixOfEachObject(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
	d.server.AddVM(machine421())
	d.server.AddDisk(image())
	d.server.AddDisk(emulator.Disk{Volume: "local:snippets/blue.yaml", Content: "snippets"})
	d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-0", Owner: 421, Content: "images"})
	d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-9", Owner: 421, Content: "images",
		Node: "pve2"})
	d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-430-disk-0", Owner: 430, Content: "images"})
	objects, err := Search{Client: d.client(t)}.Gone(t.Context(), values.ObjectsOf(state()), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]string{}
	for _, x := range objects {
		if x.Gone {
			t.Errorf("%s %s counts as gone", x.Kind, x.ID)
		}
		ways[x.ID] = x.Where + " | " + x.Fix
	}
	for id, want := range map[string]string{
		"421": "node proxmox | as root on node proxmox: qm stop 421 && qm " +
			"destroy 421 --purge",
		"local-lvm:vm-421-disk-0": "node proxmox | as root on node proxmox: pvesm free " +
			"local-lvm:vm-421-disk-0",
		"local-lvm:vm-421-disk-9": "node pve2 | as root on node pve2: pvesm free " +
			"local-lvm:vm-421-disk-9",
		"local:import/blue-talos-v1.13.0.qcow2": "node proxmox | as root on node proxmox: pvesm free " +
			"local:import/blue-talos-v1.13.0.qcow2",
		"local:snippets/blue.yaml": "node proxmox | as root on node proxmox: pvesm free " +
			"local:snippets/blue.yaml",
	} {
		if ways[id] != want {
			t.Errorf("%s: %q, want %q", id, ways[id], want)
		}
	}
	if len(ways) != 5 {
		t.Errorf("somebody else's is among them: %v", ways)
	}
}

func TestARecycledIdIsForeign(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	other := emulator.VM{ID: 421, Name: "prod-database", Running: true, Config: map[string]string{
		"net0": "virtio=BC:24:11:00:00:99,bridge=vmbr0", "scsi0": "local-lvm:vm-421-disk-0,size=8G",
	}}
	d.server.AddVM(other)
	left, gone := ask(t, d, Search{}, values.ObjectsOf(state()))
	if len(left) > 0 || len(gone) != 4 {
		t.Errorf("left %q, gone %q", left, gone)
	}
	// A disk of ours that it does not use is still ours.
	d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-7", Owner: 421, Content: "images"})
	owned := append(values.ObjectsOf(state()), platform.Object{Kind: platform.Disk, Node: "proxmox", VM: 421,
		Volume: "local-lvm:vm-421-disk-7"})
	if left, _ := ask(t, d, Search{}, owned); !slices.Equal(left,
		[]string{"disk local-lvm:vm-421-disk-7: still there"}) {
		t.Errorf("left %q", left)
	}
}

func TestAFailedReadProvesNothing(t *testing.T) {
	for name, spoil := range map[string]func(datacenter){
		"datacenter": func(d datacenter) {
			d.server.Fail(emulator.Fault{Path: "nodes", Code: 500, Text: "cluster not ready - no quorum?"})
		},
		"node": func(d datacenter) { d.server.SetOffline("proxmox", true) },
		"storage": func(d datacenter) {
			d.server.Fail(emulator.Fault{Path: "nodes/*/storage/local-lvm/content", Code: 500,
				Text: "timeout"})
		},
		"ids": func(d datacenter) {
			d.server.Fail(emulator.Fault{Path: "cluster/nextid", Code: 500,
				Text: "no"})
		},
		"rights": func(d datacenter) {
			d.server.Fail(emulator.Fault{Path: "access/permissions", Code: 403,
				Text: "no"})
		},
		"storage list": func(d datacenter) {
			d.server.Fail(emulator.Fault{Path: "nodes/proxmox/storage", Code: 403,
				Text: "no"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some pause before they repeat
			d := newDatacenter(t, emulator.Config{})
			spoil(d)
			left, _ := ask(t, d, Search{}, values.ObjectsOf(state()))
			if !slices.ContainsFunc(left,
				func(s string) bool { return strings.Contains(s, "not proved: ") }) {
				t.Errorf("left %q", left)
			}
		})
	}
}

func TestAPartialListProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		rights map[string]string // by path, as the API answers
		left   []string
	}{
		"none": {nil, []string{
			"disk local-lvm:vm-421-disk-0: not proved: not everything could be read",
			"image local:import/blue-talos-v1.13.0.qcow2: not proved: this API token may not see all " +
				"files there",
			"snippet local:snippets/blue.yaml: not proved: this API token may not see all files there",
			"storage local-lvm: not proved: this API token may not see all disks there",
		}},
		"audit, without the guest": {
			map[string]string{"/storage/local-lvm": `{"Datastore.Audit":1}`,
				"/storage/local": `{"Datastore.Allocate":0}`},
			[]string{
				"disk local-lvm:vm-421-disk-0: not proved: not everything could be read",
				"storage local-lvm: not proved: this API token may not see all disks there",
			},
		},
		"audit and the guest": {
			map[string]string{
				"/storage/local-lvm": `{"Datastore.Audit":1}`, "/storage/local": `{"Datastore.Allocate":1}`,
				"/vms/421": `{"VM.Config.Disk":1}`,
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{})
			insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			client, err := newClient(token, d.endpoint,
				limited{insecure, c.rights})
			if err != nil {
				t.Fatal(err)
			}
			left, _ := ask(t, d, Search{Client: client}, values.ObjectsOf(state()))
			if !slices.Equal(left, c.left) {
				t.Errorf("left %q, want %q", left, c.left)
			}
		})
	}
}

// A token that is limited to a pool sees no disks of a machine that is gone. Its own task proves them gone.
func TestTheOwnDeletionProvesDisksGone(t *testing.T) {
	for name, c := range map[string]struct {
		removes func(datacenter)
		proved  bool
	}{
		"deleted with the token": {func(d datacenter) { d.remove(t, 421) }, true},
		"a disk was left": {func(d datacenter) {
			d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-0", Owner: 421, Content: "images",
				Stuck: true})
			d.remove(t, 421)
		}, false},
		"deleted by somebody else": {func(d datacenter) { d.server.RemoveVM(421) }, false},
		"deleted before it was made anew": {func(d datacenter) {
			d.remove(t, 421)
			d.build(t, 421, "blue-cp-01", "blue;castle", "blue")
			d.server.Idle()
			d.server.RemoveVM(421)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{})
			d.server.AddDisk(image())
			d.limit(t, Footprint{Pool: "blue", Nodes: []string{"proxmox"}, Images: []string{"local"},
				Disks: []string{"local-lvm"}, Bridges: []string{"vmbr0"}}.Commands("castle@pve!blue")...)
			d.build(t, 421, "blue-cp-01", "blue;castle", "blue")
			d.server.Idle()
			c.removes(d)
			d.server.RemoveDisk("proxmox", image().Volume)
			left, _ := ask(t, d, Search{}, values.ObjectsOf(state()))
			blind := func(s string) bool { return strings.Contains(s, "may not see all disks") }
			if slices.ContainsFunc(left, blind) == c.proved {
				t.Errorf("left %q", left)
			}
		})
	}
}

// Every node lists a disk on shared storage, and the machine's own has deleted it.
func TestTheOwnDeletionProvesDisksOnSharedStorageGone(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}, Storages: []emulator.Storage{
		{ID: "nfs", Type: "nfs", Content: []string{"images"}, Shared: true}}})
	d.limit(t, Footprint{Pool: "blue", Nodes: []string{"proxmox", "pve2"}, Disks: []string{"nfs"},
		Bridges: []string{"vmbr0"}}.Commands("castle@pve!blue")...)
	vm := machine421()
	vm.Node, vm.Pool, vm.Running = "pve2", "blue", false
	vm.Config["scsi0"] = "nfs:421/vm-421-disk-0.raw,size=8G"
	d.server.AddVM(vm)
	d.removeOn(t, "pve2", 421)
	left, gone := ask(t, d, Search{}, []platform.Object{{Kind: platform.Machine, Node: "pve2", VM: 421},
		{Kind: platform.Disk, Node: "proxmox", VM: 421, Volume: "nfs:421/vm-421-disk-0.raw"}})
	if len(left) > 0 || len(gone) != 2 {
		t.Errorf("left %q, gone %q", left, gone)
	}
}

// A machine that has moved since it was recorded is proved gone, with the disks that moved with it. One that
// stayed behind is a leftover.
func TestAMachineThatHasMovedIsProvedGone(t *testing.T) {
	config := emulator.Config{Nodes: []string{"proxmox", "pve2"}, Storages: []emulator.Storage{
		{ID: "local", Type: "dir", Content: []string{"import"}},
		{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}},
		{ID: "rbd", Type: "rbd", Content: []string{"images"}, Shared: true},
	}}
	for name, leftover := range map[string]bool{"with its disks": false, "without one": true} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, config)
			d.server.AddDisk(image())
			d.limit(t, Footprint{Pool: "blue", Nodes: config.Nodes, Images: []string{"local"},
				Disks: []string{"local-lvm"}, Bridges: []string{"vmbr0"}}.Commands("castle@pve!blue")...)
			d.build(t, 421, "blue-cp-01", "blue;castle", "blue")
			d.server.Idle()
			d.server.Configure(421, map[string]string{"scsi2": "rbd:vm-421-disk-0,size=8G",
				"net0": "virtio=" + mac})
			owned := append(values.ObjectsOf(state())[:2],
				platform.Object{Kind: platform.Disk, Node: "proxmox", VM: 421, Volume: "rbd:vm-421-disk-0"})
			const see = "pveum acl modify /storage/rbd --users castle@pve --roles CastleDisks"
			if _, err := d.server.Pveum(see); err != nil {
				t.Fatal(err)
			}
			d.server.Migrate(421, "pve2")
			if leftover {
				d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-0", Owner: 421,
					Content: "images"})
			}
			owned = Search{Client: d.client(t)}.Complete(t.Context(), owned)
			d.removeOn(t, "pve2", 421)
			left, gone := ask(t, d, Search{}, owned)
			if leftover != (len(left) > 0) || !slices.Contains(gone, "machine 421") {
				t.Errorf("left %q, gone %q", left, gone)
			}
		})
	}
}

// remove deletes a machine with the token.
func (d datacenter) remove(t *testing.T, id int) { d.removeOn(t, "proxmox", id) }

func (d datacenter) removeOn(t *testing.T, node string, id int) {
	t.Helper()
	path := fmt.Sprintf("nodes/%s/qemu/%d", node, id)
	_, err := d.client(t).session.Call(t.Context(), http.MethodDelete, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.server.Idle()
}

// limited answers for the rights of a token.
type limited struct {
	http.RoundTripper
	rights map[string]string
}

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/access/permissions") {
		return l.RoundTripper.RoundTrip(r)
	}
	path := r.URL.Query().Get("path")
	answer := httptest.NewRecorder()
	_, err := fmt.Fprintf(answer, `{"data":{%q:%s}}`, path, cmp.Or(l.rights[path], "{}"))
	return answer.Result(), err
}

func TestAnUnprovedMachineHasNoFix(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(emulator.VM{ID: 421, Name: "prod-database"})
	objects, err := Search{Client: d.client(t)}.Gone(t.Context(),
		[]platform.Object{{Kind: platform.Machine, VM: 421, Name: "blue-cp-01"}}, func(string) {})
	if err != nil || len(objects) != 1 || objects[0].Gone || objects[0].Fix != "" {
		t.Errorf("objects %+v, %v", objects, err)
	}
}

func TestGoneWaitsForARunningDeletion(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddDisk(image())
	hold := make(chan struct{})
	d.deleteHeld(t, hold, image().Volume)
	var reports []string
	objects, err := Search{Client: d.client(t), Interval: time.Millisecond}.Gone(t.Context(),
		values.ObjectsOf(state()),
		func(text string) {
			reports = append(reports, text)
			close(hold) // somebody waits for it
		})
	want := "image local:import/blue-talos-v1.13.0.qcow2: Proxmox' task imgdel is still running; " +
		"waiting for it"
	if err != nil || !slices.Equal(reports, []string{want}) {
		t.Fatalf("reports %q, %v", reports, err)
	}
	for _, x := range objects {
		if !x.Gone {
			t.Errorf("%s %s: %s", x.Kind, x.ID, x.Reason)
		}
	}
}

func TestGoneTimesOutOnARunningDeletion(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddDisk(image())
	hold := make(chan struct{})
	defer close(hold)
	d.deleteHeld(t, hold, image().Volume)
	left, _ := ask(t, d, Search{Interval: time.Millisecond, Timeout: 20 * time.Millisecond},
		values.ObjectsOf(state()))
	if want := "image " + image().Volume +
		": Proxmox' task imgdel is still running after 20ms"; !slices.Equal(left, []string{want}) {
		t.Errorf("left %q", left)
	}
}

func TestCompleteAddsDisksOutsideTheState(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-0", Owner: 421, Content: "images"})
	d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-cloudinit", Owner: 421, Content: "images"})
	owned := Search{Client: d.client(t)}.Complete(t.Context(), values.ObjectsOf(state()))
	var disks []string
	for _, x := range owned {
		if x.Kind == platform.Disk {
			disks = append(disks, x.Volume)
		}
	}
	if want := []string{"local-lvm:vm-421-disk-0", "local-lvm:vm-421-cloudinit"}; !slices.Equal(disks, want) {
		t.Errorf("disks %q, want %q", disks, want)
	}
}

func TestMergeReplacesAMachinesOldRecord(t *testing.T) {
	before := []platform.Object{{Kind: platform.Machine, VM: 421, MACs: []string{"A"}}, {Kind: platform.Disk,
		VM: 421, Node: "proxmox",
		Volume: "local-lvm:vm-421-disk-0"}}
	after := platform.Merge(before, platform.Object{Kind: platform.Machine, VM: 421, MACs: []string{"B"}},
		before[1])
	if len(after) != 2 || after[0].MACs[0] != "B" {
		t.Errorf("owned %v", after)
	}
}

// deleteHeld begins to delete a volume as the provider does; the task ends when hold is closed.
func (d datacenter) deleteHeld(t *testing.T, hold <-chan struct{}, volume string) {
	t.Helper()
	d.server.Fail(emulator.Fault{Method: http.MethodDelete, Path: "nodes/proxmox/storage/local/content/*/*",
		Times: 1, Hold: hold})
	path := "nodes/proxmox/storage/local/content/" + volume
	if _, err := d.client(t).session.Call(t.Context(), http.MethodDelete, path, nil); err != nil {
		t.Fatal(err)
	}
}

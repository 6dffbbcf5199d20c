package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// stand is a running machine of castle's, with two disks.
func stand(id int, name string) emulator.VM {
	return emulator.VM{ID: id, Name: name, Tags: []string{"blue", "castle"}, Running: true,
		Config: map[string]string{
			"smbios1": fmt.Sprintf("uuid=%d", id), "scsi0": fmt.Sprintf("local-lvm:vm-%d-disk-0,size=20G",
				id),
			"unused0": fmt.Sprintf("local-lvm:vm-%d-disk-1", id),
			"net0":    "virtio=BC:24:11:00:00:01,bridge=vmbr0",
		}}
}

// surveyed returns one guest of a survey of VM 421 to 432.
func surveyed(t *testing.T, d datacenter, id int) Guest {
	t.Helper()
	all, err := d.client(t).Survey(t.Context(), platform.Range{From: 421, To: 432}, nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s Guest) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("VM %d was not found: %+v", id, all)
	}
	return all[i]
}

func remover(t *testing.T, d datacenter) *Removal {
	return &Removal{Client: d.client(t), Ownership: Ownership{Range: platform.Range{From: 421, To: 432}},
		Interval: time.Millisecond, Timeout: time.Minute}
}

// changes lists the requests that change anything.
func changes(d datacenter) []string {
	var all []string
	for _, r := range d.server.Requests() {
		if r.Method != "GET" {
			all = append(all, r.Method+" "+r.Path)
		}
	}
	return all
}

func TestSurveySeesEveryGuestInTheRange(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
	d.server.AddVM(stand(421, "blue-cp-01"))
	d.server.AddVM(emulator.VM{ID: 422, Hidden: true})
	d.server.AddVM(emulator.VM{ID: 423, Kind: "lxc", Name: "box"})
	d.server.AddVM(emulator.VM{ID: 424, Name: "far", Node: "pve2"})
	d.server.AddVM(emulator.VM{ID: 425, HA: true, Replicated: true, Pool: "castle"})
	d.server.AddVM(emulator.VM{ID: 433, Name: "next door"})
	d.server.SetOffline("pve2", true)
	all, err := d.client(t).Survey(t.Context(), platform.Range{From: 421, To: 432}, nil)
	if err != nil || len(all) != 5 {
		t.Fatalf("found %+v, %v", all, err)
	}
	if s := all[0]; s.Name != "blue-cp-01" || s.Status != "running" || s.Config["smbios1"] != "uuid=421" ||
		s.HA || s.Replicated {
		t.Errorf("VM 421: %+v", s)
	}
	if s := all[1]; !s.Hidden {
		t.Errorf("VM 422: %+v", s)
	}
	if s := all[2]; s.Kind != "lxc" {
		t.Errorf("VM 423: %+v", s)
	}
	if s := all[3]; !strings.Contains(s.Unreadable, "node pve2 does not answer") {
		t.Errorf("VM 424: %+v", s)
	}
	if s := all[4]; !s.HA || !s.Replicated || s.Pool != "castle" {
		t.Errorf("VM 425: %+v", s)
	}
	if got := changes(d); len(got) > 0 {
		t.Errorf("looking has changed something: %q", got)
	}
}

func TestSurveyFailsOnARequestError(t *testing.T) {
	for _, path := range []string{"cluster/nextid", "cluster/resources", "cluster/replication",
		"nodes/*/qemu/421/config"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel() // each pauses before it repeats
			d := newDatacenter(t, emulator.Config{})
			d.server.AddVM(stand(421, "blue-cp-01"))
			d.server.Fail(emulator.Fault{Path: path, Code: 500, Text: "cluster not ready - no quorum?"})
			if all, err := d.client(t).Survey(soon(t), platform.Range{From: 421, To: 421}, nil); err == nil {
				t.Errorf("found %+v", all)
			}
		})
	}
}

func TestRemoveStopsDeletesAndProves(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Duration: 5 * time.Millisecond})
	d.server.AddVM(stand(421, "blue-cp-01"))
	d.server.AddVM(stand(422, "blue-cp-02"))
	d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-9", Owner: 421, Content: "images"})
	r := remover(t, d)
	var steps []string
	r.Note = func(s Step) error {
		steps = append(steps, fmt.Sprintf("%s %d %s %s %v %d", s.Kind, s.ID, s.Name, s.SMBIOS, s.Volumes,
			len(changes(d))))
		return nil
	}
	remains, err := r.Remove(t.Context(), surveyed(t, d, 421))
	if err != nil {
		t.Fatal(err)
	}
	// The last number counts the requests so far. castle reports each step first.
	want := []string{
		"stop 421 blue-cp-01 uuid=421 [] 0", "stopped 421 blue-cp-01 uuid=421 [] 1",
		"delete 421 blue-cp-01 uuid=421 [local-lvm:vm-421-disk-0 local-lvm:vm-421-disk-1] 1",
		"task 421 blue-cp-01 uuid=421 [] 2",
		"gone 421 blue-cp-01 uuid=421 [] 2", "left 421 blue-cp-01 uuid=421 [local-lvm:vm-421-disk-9] 2",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("steps\n%s\nwant\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
	}
	if !remains.Gone || len(remains.Own) > 0 ||
		!slices.Equal(remains.Unreferenced, []string{"local-lvm:vm-421-disk-9"}) {
		t.Errorf("remains %+v", remains)
	}
	for _, q := range d.server.Requests() {
		if q.Method == "DELETE" &&
			(q.Params.Get("purge") != "1" || q.Params.Get("destroy-unreferenced-disks") != "0") {
			t.Errorf("deleted with %v", q.Params)
		}
	}
	if vms := d.server.VMs(); len(vms) != 1 || vms[0].ID != 422 || !vms[0].Running ||
		len(d.server.Disks()) != 3 {
		t.Errorf("left: %+v %+v", vms, d.server.Disks())
	}
}

// A machine that is replaced, renamed or changed between two looks is not touched any more, whenever that
// happens.
func TestRemoveStopsWhenTheMachineHasChanged(t *testing.T) {
	change := map[string]struct {
		vm   func(*emulator.VM)
		want string
	}{
		"another uuid": {func(v *emulator.VM) { v.Config["smbios1"] = "uuid=other" },
			"another smbios1"},
		"another creation": {func(v *emulator.VM) { v.Config["meta"] = "creation-qemu=9,ctime=5" },
			"another meta"},
		"another name": {func(v *emulator.VM) { v.Name = "blue-cp-02" },
			`name: "blue-cp-02", was "blue-cp-01"`},
		"another node": {func(v *emulator.VM) { v.Node = "pve2" }, `node: "pve2", was "proxmox"`},
		"another disk": {func(v *emulator.VM) { v.Config["scsi1"] = "local-lvm:vm-421-disk-5,size=1G" },
			"another scsi1"},
		"no tags any more":   {func(v *emulator.VM) { v.Tags = nil }, "another tags"},
		"protected":          {func(v *emulator.VM) { v.Protection = true }, "another protection"},
		"a backup has begun": {func(v *emulator.VM) { v.Lock = "backup" }, "another lock"},
		"highly available":   {func(v *emulator.VM) { v.HA = true }, "high availability"},
		"replicated":         {func(v *emulator.VM) { v.Replicated = true }, "replicated"},
		"invisible":          {func(v *emulator.VM) { v.Hidden = true }, "cannot be read"},
		"running again":      {func(v *emulator.VM) { v.Running = true }, "is running again"},
	}
	for name, test := range change {
		other := stand(421, "blue-cp-01")
		other.Running = false
		test.vm(&other)
		t.Run(name+" before it is stopped", func(t *testing.T) {
			if name == "running again" {
				t.Skip("it runs")
			}
			d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
			d.server.AddVM(stand(421, "blue-cp-01"))
			was := surveyed(t, d, 421)
			d.server.RemoveVM(421)
			d.server.AddVM(other)
			_, err := remover(t, d).Remove(t.Context(), was)
			if err == nil || !strings.HasPrefix(err.Error(), "VM 421: ") ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if got := changes(d); len(got) > 0 {
				t.Errorf("touched: %q", got)
			}
		})
		t.Run(name+" before it is deleted", func(t *testing.T) {
			var d datacenter
			d = newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"},
				OnStop: func(emulator.VM) {
					d.server.RemoveVM(421)
					d.server.AddVM(other)
				}})
			d.server.AddVM(stand(421, "blue-cp-01"))
			r := remover(t, d)
			if name == "another node" || name == "invisible" || name == "running again" {
				r.Timeout = time.Nanosecond // whether it stopped cannot be told
			}
			_, err := r.Remove(t.Context(), surveyed(t, d, 421))
			if err == nil {
				t.Fatal("it was deleted")
			}
			if r.Timeout != time.Nanosecond && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if got := changes(d); !slices.Equal(got, []string{"POST nodes/proxmox/qemu/421/status/stop"}) ||
				len(d.server.VMs()) != 1 {
				t.Errorf("touched: %q", got)
			}
		})
	}
}

func TestRemoveStopsWhenTheMachineHasDisappeared(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(stand(421, "blue-cp-01"))
	was := surveyed(t, d, 421)
	d.server.RemoveVM(421)
	if _, err := remover(t, d).Remove(t.Context(), was); err == nil ||
		!strings.Contains(err.Error(), "disappeared") || len(changes(d)) > 0 {
		t.Errorf("%v, %q", err, changes(d))
	}
}

func TestRemoveStopsOnAFailedTask(t *testing.T) {
	for _, test := range []struct{ method, path, want string }{
		{"POST", "nodes/*/qemu/421/status/stop", "VM 421: stop: task UPID:"},
		{"DELETE", "nodes/*/qemu/421", "VM 421: delete: task UPID:"},
	} {
		d := newDatacenter(t, emulator.Config{})
		d.server.AddVM(stand(421, "blue-cp-01"))
		d.server.Fail(emulator.Fault{Method: test.method, Path: test.path, Task: "VM is locked (backup)"})
		remains, err := remover(t, d).Remove(t.Context(), surveyed(t, d, 421))
		if err == nil || !strings.HasPrefix(err.Error(), test.want) ||
			!strings.HasSuffix(err.Error(), ": VM is locked (backup)") || remains.Gone {
			t.Errorf("%s: %v", test.method, err)
		}
		if len(d.server.VMs()) != 1 {
			t.Error("it is gone")
		}
	}
}

func TestRemoveRepeatsNothing(t *testing.T) {
	for _, method := range []string{"POST", "DELETE"} {
		d := newDatacenter(t, emulator.Config{})
		d.server.AddVM(stand(421, "blue-cp-01"))
		d.server.Fail(emulator.Fault{Method: method, Path: "nodes/*/qemu/421*", Drop: true})
		d.server.Fail(emulator.Fault{Method: method, Path: "nodes/*/qemu/421/status/stop", Drop: true})
		if _, err := remover(t, d).Remove(t.Context(), surveyed(t, d, 421)); err == nil {
			t.Errorf("%s: a lost answer was taken for success", method)
		}
		asked := 0
		for _, c := range changes(d) {
			if strings.HasPrefix(c, method) {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("%s was sent %d times", method, asked)
		}
	}
}

func TestRemoveEndsWithItsTimeout(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	hold := make(chan struct{})
	defer close(hold)
	d.server.AddVM(stand(421, "blue-cp-01"))
	d.server.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu/421/status/stop", Hold: hold})
	r := remover(t, d)
	r.Timeout = 20 * time.Millisecond
	if _, err := r.Remove(t.Context(), surveyed(t, d, 421)); err == nil ||
		!strings.Contains(err.Error(), "still runs after 20ms") {
		t.Errorf("%v", err)
	}
}

func TestRemoveEndsWithItsContext(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	d := newDatacenter(t, emulator.Config{OnStop: func(emulator.VM) { cancel(why) }})
	d.server.AddVM(stand(421, "blue-cp-01"))
	if _, err := remover(t, d).Remove(ctx, surveyed(t, d, 421)); !errors.Is(err, why) ||
		len(d.server.VMs()) != 1 {
		t.Errorf("%v, %q", err, changes(d))
	}
}

func TestRemoveNamesTheDiskThatCouldNotBeFreed(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(stand(421, "blue-cp-01"))
	d.server.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-0", Owner: 421, Content: "images",
		Stuck: true})
	remains, err := remover(t, d).Remove(t.Context(), surveyed(t, d, 421))
	if err != nil || !remains.Gone || !slices.Equal(remains.Own, []string{"local-lvm:vm-421-disk-0"}) {
		t.Errorf("%+v, %v", remains, err)
	}
}

func TestRemoveStopsWhenTheJournalFails(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(stand(421, "blue-cp-01"))
	full := errors.New("no space left on device")
	r := remover(t, d)
	r.Note = func(Step) error { return full }
	if _, err := r.Remove(t.Context(), surveyed(t, d, 421)); !errors.Is(err, full) || len(changes(d)) > 0 {
		t.Errorf("%v, %q", err, changes(d))
	}
}

func TestTheListOfAnEmptyRangeIsEmptyAndNotNull(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	n, err := Platform{}.Nuke(platform.Account{Endpoint: d.endpoint, Token: token, CA: d.ca},
		platform.Signs{Range: platform.Range{From: 421, To: 432}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := n.Survey(t.Context()); err != nil || all == nil || len(all) > 0 {
		t.Errorf("%#v, %v", all, err)
	}
}

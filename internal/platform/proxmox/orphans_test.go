package proxmox

import (
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform"
)

func TestAnOrphanOfAnUnreadableGuestIsRefused(t *testing.T) {
	disk := emulator.Disk{Volume: "local-lvm:vm-422-disk-0", Owner: 422, Content: "images", Size: 1 << 30}
	for name, test := range map[string]struct {
		change func(datacenter)
		want   string // part of why; empty if it may go
	}{
		"nobody": {},
		"a machine out of reach": {change: func(d datacenter) { d.server.SetOffline("pve2", true) },
			want: `VM 500 "far" on node pve2 cannot be read, and may use it`},
		"a token that sees a pool": {change: func(d datacenter) {
			d.limit(t, "pveum pool add castle",
				"pveum role add Storage --privs Datastore.Allocate,Datastore.Audit",
				"pveum acl modify /pool/castle --users castle@pve --roles Administrator",
				"pveum acl modify /storage --users castle@pve --roles Storage")
		},
			want: "may not see every machine"},
	} {
		d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
		d.server.AddVM(emulator.VM{ID: 500, Name: "far", Node: "pve2"})
		d.server.AddDisk(disk)
		if test.change != nil {
			test.change(d)
		}
		all, _, err := d.client(t).Orphans(t.Context(), platform.Range{From: 421, To: 432},
			func(int) string { return "" })
		if err != nil || len(all) != 1 || all[0].Size != disk.Size || all[0].ID != 422 {
			t.Fatalf("%s: %+v, %v", name, all, err)
		}
		if got := all[0].Refused; !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: refused: %q, want %q", name, got, test.want)
		}
	}
}

func TestFreeRefusesAChangedDisk(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	disk := emulator.Disk{Volume: "local-lvm:vm-422-disk-0", Owner: 422, Content: "images", Size: 1 << 30}
	d.server.AddDisk(disk)
	table := func() platform.Orphan {
		all, _, err := d.client(t).Orphans(t.Context(), platform.Range{From: 421, To: 432},
			func(int) string { return "" })
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	was, r := table(), remover(t, d)
	d.server.AddVM(emulator.VM{ID: 422, Name: "new"})
	if err := r.Free(t.Context(), was); err == nil || !strings.Contains(err.Error(), "VM 422 is there") {
		t.Errorf("its id is taken: %v", err)
	}
	d.server.RemoveVM(422)
	d.server.AddVM(emulator.VM{ID: 500, Config: map[string]string{"scsi3": disk.Volume}})
	if err := r.Free(t.Context(), was); err == nil ||
		!strings.Contains(err.Error(), "has changed since the table was made") {
		t.Errorf("somebody uses it now: %v", err)
	}
	if got := changes(d); len(got) > 0 {
		t.Errorf("asked for %q", got)
	}
	d.server.RemoveVM(500)
	d.server.AddDisk(disk)
	if err := r.Free(t.Context(), table()); err != nil || len(d.server.Disks()) != 0 {
		t.Errorf("%v, left %v", err, d.server.Disks())
	}
}

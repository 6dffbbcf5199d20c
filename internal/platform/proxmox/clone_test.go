package proxmox

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// golden is a datacenter with the template 9000, whose disk is on shared storage, and 9001, whose is not.
func golden(t *testing.T, config emulator.Config) datacenter {
	t.Helper()
	config.Nodes = []string{"proxmox", "pve2"}
	config.Storages = []emulator.Storage{{ID: "nfs", Type: "nfs", Content: []string{"images"}, Shared: true},
		{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}}}
	d := newDatacenter(t, config)
	for id, disk := range map[int]string{9000: "nfs:9000/base-9000-disk-0.raw",
		9001: "local-lvm:base-9001-disk-0"} {
		d.server.AddVM(emulator.VM{ID: id, Name: "golden", Template: true,
			Config: map[string]string{"scsi0": disk + ",size=8G"}})
	}
	return d
}

// clones asks for cp-01 as the provider does in its first request.
func (d datacenter) clones(t *testing.T, description string) {
	t.Helper()
	if err := d.send(t, "POST", "nodes/proxmox/qemu/9000/clone", url.Values{"newid": {"421"},
		"name": {"blue-cp-01"}, "description": {description}, "full": {"1"}}); err != nil {
		t.Fatal(err)
	}
}

// A clone has a uuid of Proxmox' until the second request of the provider. Its description tells whose it is,
// while it is made and if the run was killed then.
func TestACloneIsRecognizedBeforeItHasItsUUID(t *testing.T) {
	own := "Made by castle. " + values.UUIDOf("our key", "blue-cp-01")
	for name, test := range map[string]struct {
		description string
		foreign     bool
	}{
		"our own":                     {own, false},
		"somebody else's":             {"golden", true},
		"that of another cluster":     {"Made by castle. " + values.UUIDOf("their key", "blue-cp-01"), true},
		"one without any description": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			d, release := golden(t, emulator.Config{}), make(chan struct{})
			d.server.Fail(emulator.Fault{Path: "nodes/*/qemu/*/clone", Hold: release})
			c := check(t, d)
			c.derives, c.key, c.ids = true, "our key", map[string]int{"cp-01": 421}
			d.clones(t, test.description)
			reading, err := c.look(t.Context(), gate.Known{Address: cp01})
			if err != nil || reading.Own || reading.Foreign != nil {
				t.Errorf("while its disks are copied: %+v, %v", reading, err)
			}
			go func() {
				d.await(t, "nodes/proxmox/tasks", 2)
				close(release)
			}()
			var reports []string
			found, err := c.inspect(t.Context(), nil, func(text string) { reports = append(reports, text) })
			counts := [2]int{len(found.Foreign), len(found.Ours)}
			want := map[bool][2]int{true: {1, 0}, false: {0, 1}}[test.foreign]
			if err != nil || counts != want {
				t.Errorf("%+v, %v", found, err)
			}
			if want := "VM 421 on node proxmox is still being created; waiting for it"; !slices.Equal(reports,
				[]string{want}) {
				t.Errorf("reports %q", reports)
			}
			reading, err = c.look(t.Context(), gate.Known{Address: cp01})
			if err != nil || reading.Own == test.foreign || (reading.Foreign != nil) != test.foreign {
				t.Errorf("with its disks: %+v, %v", reading, err)
			}
		})
	}
}

// A task that has ended too early leaves the lock.
func TestACloneThatWasNeverFinishedIsForeign(t *testing.T) {
	d := golden(t, emulator.Config{})
	d.server.AddVM(emulator.VM{ID: 421, Name: "blue-cp-01", Lock: "clone"})
	found, err := check(t, d).inspect(t.Context(), nil, silent)
	if err != nil || len(found.Foreign) != 1 || !strings.Contains(found.Foreign[0].Why, "never finished") {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestTemplatesThatCannotBeClonedAreNamed(t *testing.T) {
	for name, test := range map[string]struct{ template, node, what, fix string }{
		"on the node":                  {"proxmox/9001", "proxmox", "", ""},
		"on shared storage, elsewhere": {"proxmox/9000", "pve2", "", ""},
		"on a node's own storage, elsewhere": {"proxmox/9001", "pve2", "template VM 9001 is on node " +
			"proxmox, and its storage local-lvm is not shared with node pve2; needed by cp-01",
			"move the template's disk to shared storage, or name a template of pve2"},
		"absent": {"proxmox/9009", "proxmox", "template VM 9009 does not exist, or this token may not " +
			"see it; needed by cp-01", "choose another one, or give the token VM.Audit and VM.Clone on " +
			"/vms/9009"},
		"on another node": {"pve2/9000", "pve2", "template VM 9000 is on node proxmox, not on node pve2; " +
			"needed by cp-01", "set the template's node_name to proxmox"},
		"no template": {"proxmox/430", "proxmox", "VM 430 on node proxmox is not a template; needed by cp-01",
			"choose another one, or make it one: qm template 430"},
		"without a disk": {"proxmox/9002", "proxmox", "template VM 9002 has no disk scsi0, from which " +
			"the machine starts; needed by cp-01", "attach its disk with Talos as scsi0, or choose another " +
			"one"},
	} {
		t.Run(name, func(t *testing.T) {
			d := golden(t, emulator.Config{})
			d.server.AddVM(emulator.VM{ID: 430})
			d.server.AddVM(emulator.VM{ID: 9002, Template: true})
			all, err := d.client(t).Hosts().Problems(t.Context(), []host.Use{{Machine: "cp-01",
				Node: test.node, Template: test.template}})
			var want []host.Problem
			if test.what != "" {
				want = []host.Problem{{What: test.what, Fix: test.fix}}
			}
			if err != nil || !slices.Equal(all, want) {
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
}

func TestACloneHasItsRights(t *testing.T) {
	f := Footprint{Pool: "green"}
	f.Uses([]host.Use{{Template: "pve1/9000"}, {Template: "pve1/9000"}})
	commands := strings.Join(f.Commands("castle@pve!green"), "\n") + "\n"
	for _, want := range []string{"pveum role add CastleClones --privs VM.Config.CDROM\n",
		"pveum acl modify /pool/green --users castle@pve --tokens 'castle@pve!green' --roles CastleClones\n",
		"pveum role add CastleTemplates --privs VM.Audit,VM.Clone\n",
		"pveum acl modify /vms/9000 --users castle@pve --tokens 'castle@pve!green' --roles " +
			"CastleTemplates\n"} {
		if strings.Count(commands, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, commands)
		}
	}
}

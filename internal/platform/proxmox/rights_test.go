package proxmox

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
)

var blue = Footprint{
	Pool: "blue", Machines: []int{421}, Nodes: []string{"proxmox"}, Images: []string{"local"},
	Disks: []string{"local-lvm"}, Bridges: []string{"vmbr0"}, Devices: []string{"pci/gpu"},
	Sources: []string{"local-lvm:base-9000-disk-0", "golden:import/golden.qcow2"},
}

// life sends what the provider sends from the image of a cluster to its deletion. It returns the first
// refusal.
func (d datacenter) life(t *testing.T) error {
	t.Helper()
	c := d.client(t)
	send := func(method, path string, form url.Values) error { return d.send(t, method, path, form) }
	const node, vm = "nodes/proxmox/", "nodes/proxmox/qemu/421"
	const template, golden = "local-lvm:base-9000-disk-0", "golden:import/golden.qcow2"
	for _, step := range []func() error{
		func() error {
			problems, err := c.Hosts().Problems(t.Context(), []host.Use{
				{Machine: "a", Node: "proxmox", Storages: []string{"local-lvm"}, Bridges: []string{"vmbr0"},
					PCI: []string{"gpu"}, Image: template}, {Machine: "b", Node: "proxmox", Image: golden}})
			if len(problems) > 0 {
				err = errors.New(problems[0].What)
			}
			return err
		},
		func() error { return c.Fetchable(t.Context(), "proxmox", "https://factory.talos.dev/x.qcow2") },
		func() error {
			return send(http.MethodPost, node+"storage/local/download-url", url.Values{
				"content": {"import"}, "filename": {"blue-talos-v1.13.0.qcow2"},
				"url": {"https://factory.talos.dev/x.qcow2"}})
		},
		func() error { return send(http.MethodGet, node+"storage/local/content?content=import", nil) },
		func() error { return d.order(t, 421, "blue-cp-01", "blue;castle", "blue") },
		func() error {
			return send(http.MethodPut, vm+"/resize", url.Values{"disk": {"scsi0"}, "size": {"21474836480"}})
		},
		func() error {
			return send(http.MethodPut, vm+"/config", url.Values{"hostpci0": {"mapping=gpu"},
				"scsi5": {"local-lvm:0,import-from=" + template},
				"scsi6": {"local-lvm:0,import-from=" + golden}})
		},
		func() error { return send(http.MethodPost, vm+"/status/start", nil) },
		func() error { return send(http.MethodGet, vm+"/config", nil) },
		func() error { return send(http.MethodGet, node+"storage/local-lvm/content/vm-421-disk-0", nil) },
		func() error {
			var pools []struct{ Poolid string }
			_, err := c.session.Call(t.Context(), http.MethodGet, "pools", &pools)
			if err != nil || len(pools) == 1 {
				return err
			}
			return errors.New("the pool is not listed")
		},
		func() error {
			return send(http.MethodPut, vm+"/config", url.Values{"nameserver": {"127.10.0.2"}})
		},
		func() error { return send(http.MethodPut, vm+"/cloudinit", nil) },
		func() error { return send(http.MethodPost, vm+"/status/stop", nil) },
		func() error { return send(http.MethodDelete, vm, nil) },
		func() error {
			return send(http.MethodDelete, node+"storage/local/content/import/blue-talos-v1.13.0.qcow2", nil)
		},
	} {
		if err := step(); err != nil {
			return err
		}
		d.server.Idle()
	}
	return nil
}

// TestEachRightOfAFootprintIsNeeded: cmd/castle shows with the real provider that they are enough.
func TestEachRightOfAFootprintIsNeeded(t *testing.T) {
	with := func(commands []string) error {
		d := newDatacenter(t, emulator.Config{Mappings: []emulator.Mapping{{Kind: "pci", Name: "gpu"}},
			Storages: []emulator.Storage{{ID: "local", Type: "dir", Content: []string{"import"}},
				{ID: "golden", Type: "dir", Content: []string{"import"}},
				{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}}}})
		d.server.AddVM(emulator.VM{ID: 9000, Template: true, Config: map[string]string{
			"scsi0": "local-lvm:base-9000-disk-0,size=8G"}})
		d.server.AddDisk(emulator.Disk{Volume: "golden:import/golden.qcow2", Content: "import"})
		d.limit(t, commands...)
		return d.life(t)
	}
	if err := with(blue.Commands("castle@pve!blue")); err != nil {
		t.Fatalf("with all rights: %v", err)
	}
	for _, r := range blue.rights() {
		for _, privilege := range r.all {
			commands := blue.Commands("castle@pve!blue")
			for i, c := range commands {
				role, list, _ := strings.Cut(c, "--privs ")
				if strings.Contains(role, "role add "+r.role+" ") {
					kept := slices.DeleteFunc(strings.Split(list, ","),
						func(p string) bool { return p == privilege })
					commands[i] = role + "--privs " + strings.Join(append(kept, "VM.Console"), ",")
				}
			}
			if err := with(commands); err == nil {
				t.Errorf("%s on %s is not needed", privilege, r.path)
			}
		}
	}
}

func TestRightsOutsideOfThePoolAreNamed(t *testing.T) {
	on := func(path, role string) string {
		return fmt.Sprintf("pveum acl modify %s --users castle@pve --roles %s", path, role)
	}
	for name, c := range map[string]struct {
		commands []string
		own      Footprint
		want     string
	}{
		"limited":        {own: blue},
		"without a pool": {own: Footprint{}, want: "VM.Allocate, VM.Config.*, VM.PowerMgmt on /pool/blue"},
		"all pools": {commands: []string{on("/pool", "CastleMachines")}, own: blue,
			want: "VM.Allocate, VM.Config.*, VM.PowerMgmt on /pool"},
		"one machine": {commands: []string{on("/vms/900", "CastleMachines")}, own: blue,
			want: "VM.Allocate, VM.Config.*, VM.PowerMgmt on /vms/900"},
		"an own id": {commands: []string{on("/vms/421", "CastleMachines")}, own: blue,
			want: "VM.Allocate, VM.Config.*, VM.PowerMgmt on /vms/421"},
		"tags of an own id": {commands: []string{"pveum role add Tags --privs VM.Config.Options",
			on("/vms/421", "Tags")}, own: blue},
		"all disks": {commands: []string{on("/storage", "CastleImages")}, own: blue,
			want: "Datastore.Allocate on /storage"},
		"rights to give rights": {commands: []string{"pveum role add Give --privs Permissions.Modify",
			on("/", "Give")}, own: blue, want: "Permissions.Modify on /"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Storages: []emulator.Storage{
				{ID: "local", Type: "dir", Content: []string{"import"}},
				{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}}}})
			d.limit(t, append(blue.Commands("castle@pve!blue"), c.commands...)...)
			d.server.AddVM(emulator.VM{ID: 422, Pool: "blue"})
			outside, err := c.own.Outside(t.Context(), d.client(t))
			if got := strings.Join(outside, "; "); err != nil || !strings.HasPrefix(got, c.want) ||
				c.want == "" && got != "" {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestUnreadableRightsAreNotCalledLimited(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.Fail(emulator.Fault{Path: "access/permissions", Code: 403, Text: "Permission check failed"})
	check := &vmCheck{client: d.client(t), pool: "blue"}
	got := check.advice(t.Context())
	if !strings.HasPrefix(got, "cannot tell whether the API token is limited") {
		t.Errorf("advice %q", got)
	}
}

func TestATokenTellsWhenItExpiresIfItMay(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	for name, test := range map[string]struct {
		options string
		expires int64
		failure string
	}{
		"for ever":   {"--privsep 0", 0, ""},
		"until 2033": {"--privsep 0 --expire 2000000000", 2000000000, ""},
		"it may not": {"--privsep 1", 0, "on a node: pveum user token list castle@pve"},
	} {
		t.Run(name, func(t *testing.T) {
			id := fmt.Sprintf("t%d-%d", test.expires, len(test.failure))
			secret, err := d.server.Pveum("pveum user token add castle@pve " + id + " " + test.options)
			if err != nil {
				t.Fatal(err)
			}
			c, err := NewClient(platform.Account{Endpoint: d.endpoint, CA: d.ca,
				Token: "castle@pve!" + id + "=" + secret})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := c.TokenExpiry(t.Context())
			switch {
			case test.failure != "":
				if err == nil || !strings.Contains(err.Error(), test.failure) {
					t.Errorf("got %v", err)
				}
			case err != nil || got.IsZero() != (test.expires == 0) ||
				test.expires > 0 && got.Unix() != test.expires:
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

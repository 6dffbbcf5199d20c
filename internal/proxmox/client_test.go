package proxmox

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

func TestClientReadsTheErrorFromBodyOrReasonPhrase(t *testing.T) {
	// Before 8.4 the text stands in the reason phrase only.
	for _, version := range []string{"8.3.5", "8.4.1", "9.1.9"} {
		t.Run(version, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Version: version})
			_, err := d.client(t).Config(t.Context(), "proxmox", 421)
			want := "proxmox: get nodes/proxmox/qemu/421/config: 500 Configuration file 'nodes/proxmox/qemu-server/421.conf' does not exist"
			if err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if !IsMissing(err) {
				t.Error("the machine does not count as missing")
			}
		})
	}
}

func TestClientSaysWhatIsWrongWithTheToken(t *testing.T) {
	for _, test := range []struct{ version, token, want string }{
		{"9.1.9", "castle@pve!castle=wrong", "401 Authentication failed!"},
		{"9.0.3", "castle@pve!castle=wrong", "401 invalid token value!"},
		{"9.0.3", "other@pve!x=wrong", "401 no such token 'x' for user 'other@pve'"},
	} {
		d := newDatacenter(t, emulator.Config{Version: test.version})
		c, err := NewClient(Options{Endpoint: d.endpoint, Token: test.token, CA: d.ca})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Version(t.Context()); err == nil || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: got %v, want … %s", test.version, err, test.want)
		}
		if strings.Contains(err.Error(), "wrong") {
			t.Errorf("the error shows the secret: %v", err)
		}
		if got := len(d.Requests()); got != 1 {
			t.Errorf("a refused token was tried %d times, want 1", got)
		}
	}
}

func TestClientTrustsOnlyWhatItIsTold(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	for name, test := range map[string]struct {
		options Options
		ok      bool
	}{
		"system certificates": {Options{}, false},
		"CA file":             {Options{CA: d.ca}, true},
		"CA as text":          {Options{CA: d.authority}, true},
		"insecure":            {Options{Insecure: true}, true},
	} {
		test.options.Endpoint, test.options.Token = d.endpoint, token
		c, err := NewClient(test.options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Version(t.Context()); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []Options{{Endpoint: "http://127.0.0.1:1"}, {Endpoint: "proxmox:8006"}, {Endpoint: d.endpoint, CA: "/does/not/exist"}} {
		if _, err := NewClient(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestTakenSeesWhatTheListHides(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.AddVM(emulator.VM{ID: 421, Name: "secret", Hidden: true})
	d.AddVM(emulator.VM{ID: 422, Name: "box", Kind: "lxc"})
	c := d.client(t)
	for id, want := range map[int]bool{421: true, 422: true, 423: false} {
		if got, err := c.Taken(t.Context(), id); err != nil || got != want {
			t.Errorf("VM %d: taken is %v, %v; want %v", id, got, err, want)
		}
	}
	guests, err := c.Guests(t.Context())
	if err != nil || len(guests) != 1 || guests[0].ID != 422 || guests[0].Kind != "lxc" {
		t.Errorf("the list shows %+v, %v", guests, err)
	}
	if _, err := c.Config(t.Context(), "proxmox", 421); !IsForbidden(err) {
		t.Errorf("the hidden machine's configuration: %v", err)
	}
}

func TestClientStopsAndDeletesAndWaitsForBothTasks(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Durations: map[string]time.Duration{"qmstop": 50 * time.Millisecond, "qmdestroy": 50 * time.Millisecond}})
	d.AddVM(emulator.VM{ID: 421, Name: "blue-cp-01", Running: true, Config: map[string]string{"scsi0": "local-lvm:vm-421-disk-0,size=20G"}})
	d.AddDisk(emulator.Disk{Volume: "local-lvm:vm-421-disk-9", Owner: 421})
	c := d.client(t)
	if err := c.Delete(t.Context(), "proxmox", 421); err == nil || !strings.Contains(err.Error(), "VM 421 is running - destroy failed") {
		t.Errorf("deleting a running machine: %v", err)
	}
	if err := c.Stop(t.Context(), "proxmox", 421); err != nil {
		t.Fatal(err)
	}
	if status, err := c.Status(t.Context(), "proxmox", 421); status != "stopped" {
		t.Errorf("status after Stop: %s, %v", status, err)
	}
	if err := c.Delete(t.Context(), "proxmox", 421); err != nil {
		t.Fatal(err)
	}
	if vms, disks := d.VMs(), d.Disks(); len(vms) != 0 || len(disks) != 1 || disks[0].Volume != "local-lvm:vm-421-disk-9" {
		t.Errorf("after Delete: machines %v, volumes %v; want only the volume that nothing refers to", vms, disks)
	}
}

func TestWaitReportsTheTasksOwnError(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.AddVM(emulator.VM{ID: 421, Lock: "backup"})
	err := d.client(t).Delete(t.Context(), "proxmox", 421)
	if err == nil || !strings.HasSuffix(err.Error(), ": VM is locked (backup)") {
		t.Errorf("deleting a locked machine: %v", err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	d := newDatacenter(t, emulator.Config{})
	d.AddVM(emulator.VM{ID: 421, Running: true})
	d.Fail(emulator.Fault{Path: "nodes/*/qemu/421/status/stop", Hold: release})
	why := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	if err := d.client(t).Stop(ctx, "proxmox", 421); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestNodeThatDoesNotAnswerIsNoMissingMachine(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.AddVM(emulator.VM{ID: 421})
	d.SetOffline("proxmox", true)
	_, err := d.client(t).Config(t.Context(), "proxmox", 421)
	var e *Error
	if !errors.As(err, &e) || e.Code != 595 || e.Text != "No route to host" || IsMissing(err) {
		t.Errorf("got %v", err)
	}
}

func TestClientReadsVersionPermissionsAndConfig(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Version: "9.1.5", Pool: "castle"})
	d.AddVM(emulator.VM{ID: 421, Pool: "castle", Tags: []string{"blue", "castle"}, Config: map[string]string{
		"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "net1": "e1000=bc:24:11:00:00:02", "cores": "4",
	}})
	c := d.client(t)
	if v, err := c.Version(t.Context()); v != "9.1.5" || err != nil {
		t.Errorf("version %q, %v", v, err)
	}
	if all, err := c.Permissions(t.Context()); err != nil || all["/pool/castle"]["VM.Allocate"] != 1 || all["/vms"] != nil {
		t.Errorf("permissions %v, %v", all, err)
	}
	config, err := c.Config(t.Context(), "proxmox", 421)
	if err != nil {
		t.Fatal(err)
	}
	if config["cores"] != "4" || !slices.Equal(config.Tags(), []string{"blue", "castle"}) ||
		!slices.Equal(config.MACs(), []string{"BC:24:11:00:00:01", "BC:24:11:00:00:02"}) {
		t.Errorf("configuration %v", config)
	}
}

func TestUnexpectedAnswerIsAnErrorNotAPanic(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.Fail(emulator.Fault{Path: "version", Times: 1, Drop: true})
	if _, err := d.client(t).Version(t.Context()); err == nil {
		t.Error("a cut connection was taken for an answer")
	}
	var guests []string
	if err := d.client(t).do(t.Context(), http.MethodGet, "version", nil, &guests); err == nil || !strings.Contains(err.Error(), "unexpected answer") {
		t.Errorf("an object where a list was expected: %v", err)
	}
}

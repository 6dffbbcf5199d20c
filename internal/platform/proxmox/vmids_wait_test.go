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
	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestVMIDsWaitsForAMachineBeingCreated(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddDisk(image())
	release := make(chan struct{})
	d.server.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Hold: release})
	d.build(t, 421, "blue-cp-01", "blue;castle")
	done := make(chan gate.Inspection, 1)
	c := check(t, d)
	c.derives, c.key = true, "our key"
	var reports []string
	go func() {
		found, err := c.inspect(t.Context(), nil, func(text string) { reports = append(reports, text) })
		if err != nil {
			t.Error(err)
		}
		done <- found
	}()
	d.await(t, "nodes/proxmox/tasks", 3)
	select {
	case found := <-done:
		t.Fatalf("a machine without name or tags is accepted: %+v", found)
	default:
	}
	close(release)
	if found := <-done; len(found.Foreign) != 0 || len(found.Ours) != 1 ||
		found.Ours[0].Import.ID != "proxmox/421" {
		t.Errorf("when it was made: %+v", found)
	}
	want := []string{"VM 421 on node proxmox is still being created; waiting for it"}
	if !slices.Equal(reports, want) {
		t.Errorf("reports %q, want %q", reports, want)
	}
}

func TestVMIDsDoesNotWaitForAnAbandonedLock(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(emulator.VM{ID: 421, Lock: "create"})
	found, err := check(t, d).inspect(t.Context(), nil, silent)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Foreign) != 1 ||
		found.Foreign[0].What != `VM 421 "VM 421" on node proxmox, stopped, no tags, locked (create)` ||
		!slices.Contains(found.Foreign[0].Fixes,
			"remove it as root on node proxmox: qm unlock 421 && qm destroy 421") ||
		found.Foreign[0].Import != nil {
		t.Errorf("got %+v", found)
	}
}

func TestVMIDsStopsWaitingWithItsContext(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddDisk(image())
	release := make(chan struct{})
	defer close(release)
	d.server.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Hold: release})
	d.build(t, 421, "blue-cp-01", "blue;castle")
	why := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := check(t, d).inspect(ctx, nil, func(string) { cancel(why) }); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	c := check(t, d)
	c.timeout = 20 * time.Millisecond
	if _, err := c.inspect(t.Context(), nil, silent); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without timeout: %v", err)
	}
}

func TestVMIDsFailsClosedOnARequestError(t *testing.T) {
	for path, answer := range map[string]string{
		"nodes": "500 cluster not ready - no quorum?", "cluster/nextid": "403 Permission check failed",
		"cluster/resources":             "500 cluster not ready - no quorum?",
		"nodes/proxmox/qemu/421/config": "595 Connection refused",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel() // some pause before they repeat
			d := newDatacenter(t, emulator.Config{})
			d.server.AddVM(ours(421, "blue-cp-01"))
			var code int
			if _, err := fmt.Sscan(answer, &code); err != nil {
				t.Fatal(err)
			}
			d.server.Fail(emulator.Fault{Path: path, Code: code, Text: answer[len("500 "):]})
			if found, err := check(t, d).inspect(soon(t), nil, silent); err == nil ||
				!strings.Contains(err.Error(), answer) {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// TestVMIDsOnANodeThatIsOffline: a machine on an offline node exists, though castle cannot read it.
func TestVMIDsOnANodeThatIsOffline(t *testing.T) {
	for name, test := range map[string]struct {
		vm     emulator.VM
		known  []gate.Known
		unsure bool
	}{
		"a foreign machine":           {vm: emulator.VM{ID: 421, Name: "prod-database"}},
		"one that could be ours":      {vm: ours(421, "blue-cp-01"), unsure: true},
		"one whose name nobody knows": {vm: emulator.VM{ID: 421}, unsure: true},
		"one that the state has": {vm: ours(421, "my-node"),
			known:  []gate.Known{known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01"})},
			unsure: true},
	} {
		d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
		test.vm.Node = "pve2"
		d.server.AddVM(test.vm)
		d.server.SetOffline("pve2", true)
		found, err := check(t, d).inspect(t.Context(), test.known, silent)
		if err != nil || len(found.Foreign) != 1 || len(found.Ours)+len(found.Present) > 0 {
			t.Fatalf("%s: %+v, %v", name, found, err)
		}
		f := found.Foreign[0]
		if !strings.Contains(f.What, " on node pve2, state unknown") ||
			!strings.HasPrefix(f.Why, "node pve2 is offline") ||
			!slices.Contains(f.Fixes, "bring node pve2 back") || f.Unverified != test.unsure ||
			f.Import != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestVMIDsReportsUnusableNodes(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
	d.server.SetOffline("pve2", true)
	c := check(t, d)
	c.node, c.nodes = "proxmox", map[string]string{"cp-01": "pve2", "wk-01": "pve9"}
	found, err := c.inspect(t.Context(), nil, silent)
	if err != nil || len(found.Unusable) != 2 || len(found.Foreign) > 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	if got, want := found.Unusable[0].What, "node pve2, where cp-01 is to be built, is offline"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := found.Unusable[1].What,
		"node pve9, where wk-01 is to be built, does not exist; there is proxmox, pve2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestVMIDsRefusesAMissingPool(t *testing.T) {
	const missing = "pool blue, where the machines belong, does not exist, or this token may not see it"
	const fix = "as root on a node: pveum pool add blue --comment castle; " +
		"or give the token Pool.Audit on /pool/blue"
	for name, test := range map[string]struct {
		pool, want string
		commands   []string
	}{
		"none is named": {},
		"it exists":     {pool: "blue", commands: []string{"pveum pool add blue"}},
		"it does not":   {pool: "blue", commands: []string{"pveum pool add prod"}, want: missing},
		"it is invisible": {pool: "blue", want: missing, commands: []string{"pveum pool add blue",
			"pveum acl delete / --users castle@pve --roles Administrator"}},
	} {
		d := newDatacenter(t, emulator.Config{})
		c := check(t, d)
		for _, command := range test.commands {
			if _, err := d.server.Pveum(command); err != nil {
				t.Fatal(err)
			}
		}
		c.pool = test.pool
		found, err := c.inspect(t.Context(), nil, silent)
		var got string
		for _, u := range found.Unusable {
			if got += u.What; u.Fixes[0] != fix {
				t.Errorf("%s: %s", name, u.Fixes)
			}
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

package proxmox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestVMIDsWaitsForAMachineThatIsBeingMade(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.AddDisk(image())
	release := make(chan struct{})
	d.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Hold: release})
	d.build(t, 421, "blue-cp-01", "blue;castle")
	done := make(chan gate.Findings, 1)
	c := check(t, d)
	var said []string
	go func() {
		found, err := c.inspect(t.Context(), nil, func(text string) { said = append(said, text) })
		if err != nil {
			t.Error(err)
		}
		done <- found
	}()
	d.asked(t, "nodes/proxmox/tasks", 3)
	select {
	case found := <-done:
		t.Fatalf("judged a machine without name or tags: %+v", found)
	default:
	}
	close(release)
	if found := <-done; len(found.Foreign) != 0 || len(found.Ours) != 1 || found.Ours[0].ID != "proxmox/421" {
		t.Errorf("when it was made: %+v", found)
	}
	if want := []string{"VM 421 on node proxmox is still being created; waiting for it"}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

// asked returns when a path was asked for n times.
func (d datacenter) asked(t *testing.T, path string, n int) {
	t.Helper()
	for t.Context().Err() == nil {
		count := 0
		for _, r := range d.Requests() {
			if r.Path == path {
				count++
			}
		}
		if count >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestVMIDsDoesNotWaitForALockThatNobodyHolds(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.AddVM(emulator.VM{ID: 421, Lock: "create"})
	found, err := check(t, d).inspect(t.Context(), nil, silent)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Foreign) != 1 || found.Foreign[0].What != `VM 421 "VM 421" on node proxmox, stopped, no tags, locked (create)` ||
		!slices.Contains(found.Foreign[0].Ways, "remove it as root on node proxmox: qm unlock 421 && qm destroy 421") || found.Foreign[0].Import != nil {
		t.Errorf("got %+v", found)
	}
}

func TestVMIDsStopsWaitingWithItsContext(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.AddDisk(image())
	release := make(chan struct{})
	defer close(release)
	d.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Hold: release})
	d.build(t, 421, "blue-cp-01", "blue;castle")
	why := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := check(t, d).inspect(ctx, nil, func(string) { cancel(why) }); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	c := check(t, d)
	c.patience = 20 * time.Millisecond
	if _, err := c.inspect(t.Context(), nil, silent); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without patience: %v", err)
	}
}

func TestVMIDsFailsClosedWhenItCannotAsk(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
	d.AddVM(emulator.VM{ID: 421, Node: "pve2", Name: "blue-cp-01"})
	d.SetOffline("pve2", true)
	if found, err := check(t, d).inspect(t.Context(), nil, silent); err == nil || !strings.Contains(err.Error(), "595 No route to host") {
		t.Errorf("node offline: %+v, %v", found, err)
	}
	d.Fail(emulator.Fault{Path: "cluster/nextid", Code: 403, Text: "Permission check failed"})
	if _, err := check(t, d).inspect(t.Context(), nil, silent); err == nil {
		t.Error("a refused question was taken for a free id")
	}
}

package state

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/process"
)

// TestMain lets a test start this binary as another castle: it takes the lock
// of CASTLE_TEST_LOCK, prints that and holds it until it is killed.
func TestMain(m *testing.M) {
	if root := os.Getenv("CASTLE_TEST_LOCK"); root != "" {
		d, err := Open(root, "blue", "proxmox")
		if err == nil {
			_, err = d.Lock("other-run")
		}
		fmt.Println("locked:", err)
		select {}
	}
	os.Exit(m.Run())
}

func otherCastle(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CASTLE_TEST_LOCK="+root)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // dead already, if the test killed it
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked: <nil>\n" {
		t.Fatalf("the other castle: %q, %v", line, err)
	}
	return cmd
}

func TestLockIsHeldByAnotherCastleUntilItDies(t *testing.T) {
	root := t.TempDir()
	other := otherCastle(t, root)
	d, err := Open(root, "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Lock("mine")
	var held *HeldError
	if !errors.As(err, &held) {
		t.Fatalf("got %v, want a HeldError", err)
	}
	if held.Run != "other-run" || held.PID != other.Process.Pid || held.Host != hostname() ||
		time.Since(held.Since) > time.Hour {
		t.Errorf("holder: %+v", held)
	}
	if text := held.Error(); !strings.Contains(text, "cluster blue/proxmox: locked by run other-run") {
		t.Errorf("text: %s", text)
	}

	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := other.Wait(); err == nil {
		t.Fatal("the other castle ended well")
	}
	for _, takes := range []bool{false, true} {
		lock, err := d.Lock("mine")
		if err != nil {
			t.Fatal(err)
		}
		if lock.Previous != "other-run" {
			t.Errorf("previous run: %q; no run has taken over from other-run yet", lock.Previous)
		}
		if takes {
			notice, err := lock.TakeOver(t.Context())
			if err != nil || notice != "run other-run died without finishing; taking over" {
				t.Fatalf("notice %q, %v", notice, err)
			}
			if held := d.Holder(); held == nil || held.Run != "mine" {
				t.Errorf("taken over, but held by %+v", held)
			}
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := d.Lock("next")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Unlock()
	if again.Previous != "" {
		t.Errorf("after a run that ended in order, previous is %q", again.Previous)
	}
}

func TestLockIgnoresARecycledPID(t *testing.T) {
	d := open(t)
	leave := func(h holder) {
		t.Helper()
		data, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.Path(), "lock"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	self, err := process.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	h := holder{Run: "old", Host: hostname(), Boot: process.BootID(), PID: self.PID, Start: self.Start}

	leave(h) // alive, though the kernel's lock is free: a file system without locks
	var held *HeldError
	if _, err := d.Lock("mine"); !errors.As(err, &held) || held.Run != "old" {
		t.Errorf("holder alive: got %v", err)
	}
	h.Start-- // the pid belongs to another process now
	leave(h)
	lock, err := d.Lock("mine")
	if err != nil || lock.Previous != "old" {
		t.Fatalf("pid recycled: %+v, %v", lock, err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	h.Start++
	h.Boot = "before the machine was started again"
	leave(h)
	lock, err = d.Lock("mine")
	if err != nil || lock.Previous != "old" {
		t.Fatalf("machine restarted: %+v, %v", lock, err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestLockOfAnotherMachineCountsOnASharedFileSystem(t *testing.T) {
	d := open(t)
	path := filepath.Join(d.Path(), "lock")
	data, err := json.Marshal(holder{Run: "20261121T205135.000-create-0a1b2c", Host: "elsewhere",
		Boot: "its own", PID: 17, Since: time.Now().Add(-4 * time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, data)
	d.shared = func(*os.File) bool { return true }
	var held *HeldError
	if _, err := d.Lock("mine"); !errors.As(err, &held) {
		t.Fatalf("a shared file system: got %v", err)
	}
	for _, want := range []string{"(process 17 on elsewhere)", "(4 minutes)",
		"castle cannot check from here whether it is alive", "on elsewhere any more, remove " + path} {
		if !strings.Contains(held.Error(), want) {
			t.Errorf("%q is missing in %q", want, held)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(data) {
		t.Errorf("the holder's file is changed: %s, %v", got, err)
	}
	d.shared = func(*os.File) bool { return false } // its machine was renamed, or the directory copied
	lock, err := d.Lock("mine")
	if err != nil || lock.Previous == "" {
		t.Fatalf("a file system of this machine: %+v, %v", lock, err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestHeldErrorHasTheAgeAndTheFix(t *testing.T) {
	for ago, want := range map[time.Duration]string{
		time.Second: "(1 second)", 59 * time.Second: "(59 seconds)",
		4*time.Minute + 30*time.Second: "(4 minutes)",
		61 * time.Minute:               "(1 hour)", 47 * time.Hour: "(47 hours)", 50 * time.Hour: "(2 days)",
		-time.Minute: "(0 seconds)",
	} {
		e := &HeldError{Cluster: "blue/proxmox", Run: "20261121T205135.000-destroy-0a1b2c", Host: hostname(),
			PID: 17, Since: time.Now().Add(-ago)}
		if text := e.Error(); !strings.Contains(text,
			want+"\n  wait until that destroy ends, or interrupt it: kill -INT 17") {
			t.Errorf("%s: %s", ago, text)
		}
	}
}

func TestLockIgnoresATornHolder(t *testing.T) {
	d := open(t)
	if err := os.WriteFile(filepath.Join(d.Path(), "lock"), []byte(`{"run":"ol`), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := d.Lock("mine")
	if err != nil || lock.Previous != "" {
		t.Fatalf("got %+v, %v", lock, err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestLockExcludesASecondRunOfTheSameProcess(t *testing.T) {
	d := open(t)
	lock, err := d.Lock("first")
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err := d.Lock("second"); !errors.As(err, &held) || held.Run != "first" {
		t.Errorf("got %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

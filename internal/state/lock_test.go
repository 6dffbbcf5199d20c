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

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/process"
)

// held is the lock of another castle: the collector would close the file of one that nobody holds.
var held *Lock

// TestMain lets a test start this binary as another castle: it takes the lock
// of CASTLE_TEST_LOCK, prints that and holds it until it is killed.
func TestMain(m *testing.M) {
	if root := os.Getenv("CASTLE_TEST_LOCK"); root != "" {
		d, err := Open(root, "blue", "proxmox")
		if err == nil {
			held, err = d.Lock("other-run")
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

// leave writes the lock file of a run whose process has an id, a start and a boot.
func leave(t *testing.T, d *Dir, h holder) {
	t.Helper()
	h.Run, h.Host = "old", hostname()
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.Path(), "lock"), data)
}

// holderOf names a process as the holder, as the process table does.
func holderOf(t *testing.T, pid int) holder {
	t.Helper()
	p, err := process.Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	return holder{Boot: process.BootID(), PID: pid, Start: p.Start}
}

// waiting starts a process that waits until the test ends, with files open.
func waiting(t *testing.T, open ...*os.File) (pid int) {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.ExtraFiles = open
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	return cmd.Process.Pid
}

func TestLockIgnoresAProcessThatDoesNotHoldIt(t *testing.T) {
	dead := otherCastle(t, t.TempDir())
	ended := holderOf(t, dead.Process.Pid) // an entry stays in the process table until Wait
	if err := dead.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for p, err := process.Read(ended.PID); !p.Ended; p, err = process.Read(ended.PID) {
		if err != nil {
			t.Fatal(err)
		}
	}
	later, rebooted := holderOf(t, os.Getpid()), holderOf(t, os.Getpid())
	later.Start--
	rebooted.Boot = "before the machine was started again"
	another := holderOf(t, otherCastle(t, t.TempDir()).Process.Pid)
	for name, h := range map[string]holder{
		"process 1":               holderOf(t, 1),
		"a foreign process":       holderOf(t, waiting(t)),
		"a castle of another run": another,
		"a process that ended":    ended,
		"a later process":         later,
		"an earlier boot":         rebooted,
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			leave(t, d, h)
			// castle may not see the files of process 1, and a network file system counts an unknown holder.
			d.shared = func(*os.File) bool { return h.PID != 1 }
			lock, err := d.Lock("mine")
			if err != nil {
				t.Fatal(err)
			}
			if lock.Previous != "old" {
				t.Errorf("previous run: %q", lock.Previous)
			}
			if _, err := lock.TakeOver(t.Context()); err != nil {
				t.Error(err)
			}
			if held := d.Holder(); held == nil || held.Run != "mine" {
				t.Errorf("holder: %+v", held)
			}
			if err := lock.Unlock(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A network file system can lose the kernel's lock while its holder lives.
func TestLockCountsALiveHolderWithoutTheKernelsLock(t *testing.T) {
	d := open(t)
	leave(t, d, holder{})
	f, err := os.Open(filepath.Join(d.Path(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	leave(t, d, holderOf(t, waiting(t, f)))
	var held *HeldError
	if _, err := d.Lock("mine"); !errors.As(err, &held) || held.Run != "old" {
		t.Errorf("got %v", err)
	}
}

// A child that outlives castle must not keep the lock.
func TestLockIsNotInherited(t *testing.T) {
	lock, err := open(t).Lock("mine")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	p, err := process.Read(waiting(t))
	if err != nil {
		t.Fatal(err)
	}
	if open, err := p.HasOpen(lock.file); open || err != nil {
		t.Errorf("the child has the lock: %t, %v", open, err)
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
	for _, want := range []string{"(process 17 on elsewhere)", "(4m",
		"castle cannot check from here whether it is alive: wait until that create ends, " +
			"or interrupt it on elsewhere: kill -INT 17",
		"\n  if neither castle nor Terraform runs for this cluster on elsewhere any more, remove " + path} {
		if !strings.Contains(held.Error(), want) {
			t.Errorf("%q is missing in %q", want, held)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(data) {
		t.Errorf("the holder's file is changed: %s, %v", got, err)
	}
	taken, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = unix.Flock(int(taken.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	var locked *HeldError
	if _, err := d.Lock("mine"); !errors.As(err, &locked) || locked.Error() != held.Error() {
		t.Errorf("with the kernel's lock, too: %v", err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
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
		time.Second: "(1s)", 59 * time.Second: "(59s)",
		4*time.Minute + 30*time.Second: "(4m30s)",
		61 * time.Minute:               "(61m)", 47 * time.Hour: "(47h)", 50 * time.Hour: "(2d2h)",
		-time.Minute: "(0s)",
	} {
		e := &HeldError{Cluster: "blue/proxmox", Run: "20261121T205135.000-destroy-0a1b2c", Host: hostname(),
			PID: 17, Since: time.Now().Add(-ago)}
		if text := e.Error(); !strings.Contains(text,
			want+"\n  wait until that destroy ends, or interrupt it: kill -INT 17") {
			t.Errorf("%s: %s", ago, text)
		}
	}
}

func TestHeldErrorOfAStoreNamesTheLastSignOfLife(t *testing.T) {
	e := &HeldError{Cluster: "blue/proxmox", Run: "20261121T205135.000-create-0a1b2c", Host: "runner-2",
		PID: 17, Since: time.Now().Add(-time.Hour), Store: "s3://castle",
		Seen: time.Now().Add(-4 * time.Second)}
	want := "(60m)\n  its last sign of life in s3://castle is 4s old: wait until that create " +
		"ends, or interrupt it on runner-2: kill -INT 17\n  if neither castle nor Terraform runs for this " +
		"cluster on runner-2 any more: castle unlock blue/proxmox"
	if text := e.Error(); !strings.HasSuffix(text, want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
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

package namespace_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/lab/internal/namespace"
)

// The test program is also what runs outside and inside.
func TestMain(m *testing.M) {
	switch {
	case namespace.IsInit(os.Args):
		os.Exit(namespace.Init(os.Stderr))
	case len(os.Args) == 3 && os.Args[1] == "outside":
		os.Exit(outside(os.Args[2]))
	case len(os.Args) > 2 && os.Args[1] == "inside":
		os.Exit(inside(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

func TestRunShutsTheNetwork(t *testing.T) {
	dir := t.TempDir()
	covered, shown := filepath.Join(dir, "covered"), filepath.Join(dir, "shown")
	for path, content := range map[string]string{filepath.Join(covered, "file"): "outside",
		filepath.Join(shown, "file"): "inside"} {
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check(t, os.WriteFile(path, []byte(content), 0o644))
	}
	v := look(t, namespace.Spec{
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
		Ranges:    []netip.Prefix{netip.MustParsePrefix("192.0.2.240/29")},
		Hosts:     []string{"charts.example.org"}, Front: netip.MustParseAddr("127.0.0.2"),
		Mounts: []namespace.Mount{{Path: dir}, {Path: covered, From: shown}}, Files: t.TempDir(),
	}, dir)
	here, err := namespace.Network()
	check(t, err)
	if v.Proof == "" || v.Proof == here {
		t.Errorf("proof: %q, outside it is %q", v.Proof, here)
	}
	for _, name := range v.Interfaces {
		if name != "lo" {
			t.Errorf("interface %s is up", name)
		}
	}
	want := []string{"192.0.2.10:80", "192.0.2.241:80"}
	if fmt.Sprint(v.Addresses) != fmt.Sprint(want) {
		t.Errorf("answered: %v, want %v", v.Addresses, want)
	}
	if v.Resolved != "127.0.0.2" {
		t.Errorf("charts.example.org is %q", v.Resolved)
	}
	if !strings.Contains(v.Elsewhere, "no such host") {
		t.Errorf("another name: %q", v.Elsewhere)
	}
	if !strings.Contains(v.Dial, "network is unreachable") {
		t.Errorf("another address: %q", v.Dial)
	}
	if len(v.Pids) != 2 {
		t.Errorf("processes: %v, want the first one and the command", v.Pids)
	}
	if v.Hidden != "inside" {
		t.Errorf("the covered file says %q", v.Hidden)
	}
	if !strings.Contains(v.ReadOnly, "read-only file system") {
		t.Errorf("writing: %q", v.ReadOnly)
	}
}

func TestRunWorksForOrdinaryUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("TestRunShutsTheNetwork has shown it")
	}
	v := look(t, namespace.Spec{Files: readable(t), Front: netip.MustParseAddr("127.0.0.2"),
		Hosts: []string{"charts.example.org"}}, "", asNobody)
	if v.Proof == "" || v.Resolved != "127.0.0.2" {
		t.Errorf("inside: %+v", v)
	}
}

func TestProveRefusesTheNetworkOutside(t *testing.T) {
	here, err := namespace.Network()
	check(t, err)
	if _, err := namespace.Prove(here); err == nil ||
		!strings.Contains(err.Error(), "network: this process is still in") {
		t.Errorf("error: %v", err)
	}
	if _, err := namespace.Prove(""); err == nil {
		t.Error("proved without anything to compare with")
	}
	if (namespace.Proof{}).Allows(netip.MustParseAddr("192.0.2.1")) == nil {
		t.Error("an address of the world is allowed without proof")
	}
	if err := (namespace.Proof{}).Allows(netip.MustParseAddr("127.0.0.9")); err != nil {
		t.Error(err)
	}
}

func TestInitTouchesNothingOutside(t *testing.T) {
	here, err := namespace.Network()
	check(t, err)
	r, w, err := os.Pipe()
	check(t, err)
	check(t, json.NewEncoder(w).Encode(map[string]any{"Outside": here, "Args": []string{"true"},
		"Spec": namespace.Spec{Addresses: []netip.Addr{netip.MustParseAddr("127.9.9.9")},
			Front: netip.MustParseAddr("127.0.0.2")}}))
	check(t, w.Close())
	c := exec.Command(program(t), "namespace-init")
	c.ExtraFiles = []*os.File{r}
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "network: this process is still in") {
		t.Errorf("init: %v: %s", err, out)
	}
	addresses, err := net.InterfaceAddrs()
	check(t, err)
	for _, a := range addresses {
		if strings.HasPrefix(a.String(), "127.9.9.9/") {
			t.Error("the loopback outside has been given the address")
		}
	}
}

func TestRunReturnsTheExitCode(t *testing.T) {
	c := start(t, namespace.Spec{Files: t.TempDir()}, []string{"sh", "-c", "exit 7"})
	exit, ok := errors.AsType[*exec.ExitError](c.Wait())
	if !ok || exit.ExitCode() != 7 {
		t.Errorf("exit: %v", exit)
	}
}

func TestNothingSurvivesTheCaller(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "alive")
	check(t, syscall.Mkfifo(fifo, 0o600))
	// The grandchild holds the pipe open in a session of its own for as long as it lives.
	c := start(t, namespace.Spec{Files: t.TempDir()},
		[]string{"sh", "-c", "setsid sh -c 'echo up; exec sleep 1000' >" + fifo + " & wait; sleep 1000"})
	// Both ends, so that a command that never starts is a failure and no wait without end.
	rw, err := os.OpenFile(fifo, os.O_RDWR, 0)
	check(t, err)
	r, err := os.Open(fifo)
	check(t, err)
	defer r.Close()
	check(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	word := make([]byte, 3)
	_, err = r.Read(word)
	check(t, errors.Join(err, rw.Close(), c.Process.Kill()))
	check(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	if n, err := r.Read(word); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d, %v: somebody still holds the pipe", n, err)
	}
	if err := c.Wait(); err == nil {
		t.Error("killed, and yet it ended well")
	}
}

func TestAnInterruptReachesTheCommand(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "ready")
	check(t, syscall.Mkfifo(fifo, 0o600))
	c := start(t, namespace.Spec{Files: t.TempDir()},
		[]string{"sh", "-c", "trap 'exit 42' INT; echo up >" + fifo + "; while :; do sleep 0.01; done"})
	r, err := os.OpenFile(fifo, os.O_RDWR, 0)
	check(t, err)
	defer r.Close()
	check(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = r.Read(make([]byte, 3))
	check(t, err)
	check(t, c.Process.Signal(os.Interrupt))
	exit, ok := errors.AsType[*exec.ExitError](c.Wait())
	if !ok || exit.ExitCode() != 42 {
		t.Errorf("exit: %v", exit)
	}
}

package namespace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/namespace"
)

type view struct {
	Proof      string
	Interfaces []string
	Addresses  []string
	Resolved   string
	Elsewhere  string // the error of asking for another name
	Dial       string // the error of calling an address that nobody gave
	Pids       []string
	Hidden     string // what lies at the mounted path
	ReadOnly   string // the error of writing to the read-only one
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asNobody runs a command as an unprivileged user.
func asNobody(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// readable is a directory that any user may read and write.
func readable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "namespace")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o777))
	return dir
}

// program is a copy of the test program that any user may run.
func program(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/exe")
	check(t, err)
	path := filepath.Join(readable(t), "program")
	check(t, os.WriteFile(path, content, 0o755))
	return path
}

func start(t *testing.T, s namespace.Spec, args []string, how ...func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	if s.Front == (netip.Addr{}) {
		s.Front = netip.MustParseAddr("127.0.0.2")
	}
	content, err := json.Marshal(struct {
		Spec namespace.Spec
		Args []string
	}{s, args})
	check(t, err)
	c := exec.Command(program(t), "outside", string(content))
	for _, h := range how {
		h(c)
	}
	c.Stderr = os.Stderr
	if c.Stdout == nil {
		c.Stdout = os.Stderr
	}
	check(t, c.Start())
	return c
}

// look runs the test program inside and returns its view of the system.
func look(t *testing.T, s namespace.Spec, dir string, how ...func(*exec.Cmd)) view {
	t.Helper()
	here, err := namespace.Network()
	check(t, err)
	var out bytes.Buffer
	c := start(t, s, []string{"/proc/self/exe", "inside", here, dir}, append(how, func(c *exec.Cmd) {
		c.Stdout = &out
	})...)
	check(t, c.Wait())
	var v view
	check(t, json.Unmarshal(out.Bytes(), &v))
	return v
}

func outside(content string) int {
	var o struct {
		Spec namespace.Spec
		Args []string
	}
	if err := json.Unmarshal([]byte(content), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	code, err := namespace.Run(context.Background(), o.Spec, o.Args, os.Environ())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 98
	}
	return code
}

func inside(outside string, args []string) int {
	var v view
	proof, err := namespace.Prove(outside)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	v.Proof = proof.String()
	interfaces, err := net.Interfaces()
	if err != nil {
		return 96
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagUp != 0 {
			v.Interfaces = append(v.Interfaces, i.Name)
		}
	}
	for _, a := range []string{"192.0.2.10:80", "192.0.2.241:80", "192.0.2.9:80"} {
		if l, err := net.Listen("tcp", a); err == nil {
			v.Addresses = append(v.Addresses, a)
			l.Close()
		}
	}
	if all, err := net.LookupHost("charts.example.org"); err == nil {
		v.Resolved = all[0]
	}
	if _, err := net.LookupHost("other.example.org"); err != nil {
		v.Elsewhere = err.Error()
	}
	if _, err := net.Dial("tcp", "192.0.2.9:80"); err != nil {
		v.Dial = err.Error()
	}
	v.Pids, _ = filepath.Glob("/proc/[0-9]*")
	if len(args) > 0 && args[0] != "" {
		content, _ := os.ReadFile(filepath.Join(args[0], "covered", "file"))
		v.Hidden = string(content)
		if err := os.WriteFile(filepath.Join(args[0], "new"), nil, 0o600); err != nil {
			v.ReadOnly = err.Error()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		return 95
	}
	return 0
}

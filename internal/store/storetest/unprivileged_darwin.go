package storetest

import (
	"os/exec"
	"syscall"
	"testing"
)

// unprivileged is one of PostgreSQL's programs, which the tests run on Linux alone.
func unprivileged(t testing.TB, _, name string, _ ...string) *exec.Cmd {
	t.Helper()
	t.Skipf("tests with %s run on Linux", name)
	return nil
}

// child makes a server one that no Ctrl-C reaches.
func child(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

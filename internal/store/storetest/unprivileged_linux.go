package storetest

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// unprivileged is one of PostgreSQL's programs, which refuse to run as root. For root, they run in a user
// namespace that maps the same user to the account of Debian's package, which initdb looks up.
func unprivileged(t testing.TB, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		t.Fatalf("PostgreSQL is not installed (make s3): %v", err)
	}
	c := exec.Command(found[len(found)-1], args...)
	c.Dir, c.Env = dir, []string{"HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
	c.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		id := func(in string, host int) []syscall.SysProcIDMap {
			n, err := strconv.Atoi(in)
			if err != nil {
				t.Fatal(err)
			}
			return []syscall.SysProcIDMap{{ContainerID: n, HostID: host, Size: 1}}
		}
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings, c.SysProcAttr.GidMappings = id(u.Uid, 0), id(u.Gid, os.Getegid())
	}
	return c
}

// child makes a server one that no Ctrl-C reaches and that the kernel ends with this process.
func child(c *exec.Cmd) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true
	c.SysProcAttr.Pdeathsig = syscall.SIGQUIT // PostgreSQL ends at once and needs no clean-up
}

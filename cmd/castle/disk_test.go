package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// inMounts tells the test that it runs in namespaces of its own, and names somebody else's file.
const inMounts = "CASTLE_TEST_MOUNTS"

// TestDisk runs what a user meets when the disk of the state directory is full, read-only or somebody
// else's. It runs itself again as root of a user namespace, where it may mount file systems.
func TestDisk(t *testing.T) {
	if os.Getenv(inMounts) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		// The scripts, which only the other process reads, are inputs of this test's cached result.
		if err := os.CopyFS(t.TempDir(), os.DirFS("testdata/disk")); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
		foreign := filepath.Join(t.TempDir(), "foreign") // a file of a user that the namespace does not have
		if err := os.WriteFile(foreign, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if os.Chown(foreign, 4242, 4242) != nil {
			foreign = "/etc/passwd" // of root, which this user is not
		}
		cmd.Env = append(os.Environ(), inMounts+"="+foreign)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		switch exit := new(exec.ExitError); {
		case errors.As(err, &exit):
			t.Errorf("%v\n%s", err, out)
		case err != nil || bytes.Contains(out, []byte("--- SKIP: TestDisk")):
			t.Skipf("needs a user namespace with mounts: %v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt").CombinedOutput()
	if err != nil {
		t.Skipf("mount: %v\n%s", err, out)
	}
	run(t, "testdata/disk", func(env *testscript.Env) error {
		env.Setenv("FOREIGN", os.Getenv(inMounts))
		return withFleet(env)
	}, map[string]func(*testscript.TestScript, bool, []string){"vm": vm})
}

// unprivileged is the program `unprivileged program args...`: it runs a program without the rights of root.
func unprivileged() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
	}
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	check(err)
}

// somebody is the program `somebody program args...`: it runs a program as another user, which only root can.
func somebody() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242}}
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	check(err)
}

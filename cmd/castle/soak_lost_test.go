//go:build integration

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"filippo.io/age"

	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

// TestSoakLost is a soak in which a kill ends the machine: castle, all that it has started, its state
// directory, its caches and its clone are gone. The same command on the next machine completes the work.
func TestSoakLost(t *testing.T) {
	soakWith(t, func(k *soak) {
		t.Setenv("CASTLE_STATE_LOCK_TIME", "3s") // nobody looks on for a minute 40 times
		t.Setenv("CASTLE_STATE_STORE", "")       // a rehearsal sets it to local; castle.hcl names the store
		server := storetest.S3(t)
		server.Setenv(t)
		identity, err := age.GenerateX25519Identity()
		must(t, err)
		t.Setenv("CASTLE_AGE_IDENTITY", identity.String())
		k.machine = &soakMachine{t: t, disk: k.disk, config: fmt.Sprintf("state {\n  store = %q\n%s}\n",
			server.URL, encryption(identity))}
		must(t, k.machine.replace())
		k.repository = k.machine.clone
		k.machine.store = server.Dir
		k.kinds = []string{kill}
	})
}

// soakMachine is the machine that castle runs on.
type soakMachine struct {
	t      *testing.T
	disk   string // where the state directory is mounted
	clone  string // of the repository
	config string // its castle.hcl
	store  string // the folder in which the S3 server keeps its objects
}

// other returns the program that runs a command on one more machine, with a state directory of its own.
func (m *soakMachine) other() []string {
	state, boot := m.t.TempDir(), filepath.Join(m.t.TempDir(), "boot_id")
	must(m.t, os.WriteFile(boot, []byte(rand.Text()), 0o600))
	script := "mount --bind " + boot + " " + bootID + " && CASTLE_STATE_DIR=" + state + " exec \"$@\""
	return []string{"unshare", "--mount", "sh", "-c", script, "sh"}
}

const bootID = "/proc/sys/kernel/random/boot_id"

// replace makes another machine of this one: empty, and since another start.
func (m *soakMachine) replace() error {
	home := os.Getenv("HOME")
	var errs []error
	for _, dir := range []string{home, os.Getenv("XDG_CACHE_HOME"), m.clone} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	m.clone = filepath.Join(m.t.TempDir(), "clone")
	boot := filepath.Join(m.t.TempDir(), "boot_id")
	m.t.Cleanup(func() { syscall.Unmount(bootID, 0) }) //nolint:errcheck // the test has ended
	return errors.Join(append(errs, os.MkdirAll(home, 0o700),
		syscall.Unmount(m.disk, syscall.MNT_DETACH), // processes that end may still have files open
		syscall.Mount("tmpfs", m.disk, "tmpfs", 0, "size=64m,mode=700"),
		os.CopyFS(m.clone, os.DirFS("testdata/soak")),
		os.WriteFile(filepath.Join(m.clone, "castle.hcl"), []byte(m.config), 0o600),
		os.WriteFile(boot, []byte(rand.Text()), 0o600),
		syscall.Mount(boot, bootID, "", syscall.MS_BIND, ""))...)
}

package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMemoryRootIsThatOfTheSession(t *testing.T) {
	session, err := os.MkdirTemp("/dev/shm", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(session) })
	shared := fmt.Sprintf("/dev/shm/castle-%d", os.Geteuid())
	long := filepath.Join(session, strings.Repeat("x", 40)) // no socket fits below it
	for runtime, want := range map[string]string{session: session + "/castle", "": shared, "relative": shared,
		t.TempDir(): shared, long: shared} {
		if got := MemoryRoot([]string{"XDG_RUNTIME_DIR=" + runtime}); got != want {
			t.Errorf("XDG_RUNTIME_DIR=%s: %s, want %s", runtime, got, want)
		}
	}
}

package process_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/ephemeral-castle/castle/internal/process"
)

func TestNoChildDumpsCore(t *testing.T) {
	if err := process.NoCoreDumps(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "ulimit -H -c; kill -SEGV $$")
	cmd.Dir = t.TempDir()
	limit, err := cmd.Output()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if err == nil || status.Signal() != syscall.SIGSEGV || status.CoreDump() || string(limit) != "0\n" {
		t.Errorf("%v, limit %q", status, limit) // of whole blocks
	}
	if err := process.NoCoreDumps(); err != nil {
		t.Errorf("again: %v", err)
	}
}

//go:build integration

package main

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

// TestLabStore rehearses the cluster mini with its states in an S3 server inside.
func TestLabStore(t *testing.T) {
	if os.Getenv(inLab) != "" {
		server := storetest.S3(t)
		server.Setenv(t)
		t.Setenv("CASTLE_STATE_STORE", server.URL)
		t.Setenv("STORE", server.Dir)
	}
	scripts(t, "mini", "testdata/lab-store")
}

type frozenKey struct{}

// freeze stops a castle and all that castles have started here, as a laptop that sleeps does: freeze NAME.
// With ! they go on.
func freeze(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: freeze name")
	}
	sleeper := named(ts, args[0])
	frozen := ts.Value(frozenKey{}).(map[int]bool)
	signal := func(pid int, s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			ts.Fatalf("process %d: %v", pid, err)
		}
	}
	if neg {
		for pid := range frozen {
			signal(pid, syscall.SIGCONT)
		}
		ts.Check(sleeper.cmd.Process.Signal(syscall.SIGCONT))
		return
	}
	ts.Check(sleeper.cmd.Process.Signal(syscall.SIGSTOP))
	for again := true; again; {
		again = false
		for _, c := range carriers() {
			if !frozen[c.pid] {
				frozen[c.pid], again = true, true
				signal(c.pid, syscall.SIGSTOP)
			}
		}
	}
}

package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMemory runs what a user meets whose working copies are in memory, with a fake Terraform.
func TestMemory(t *testing.T) {
	run(t, "testdata/memory", func(env *testscript.Env) error {
		env.Values[begunKey{}] = map[string]*begun{}
		if err := inMemory(env); err != nil {
			return err
		}
		return fakeOnPath(env)
	}, interruptible(), map[string]func(*testscript.TestScript, bool, []string){"cut": cut})
}

// inMemory gives a script a runtime directory of its own on a memory file system, as a session has it.
func inMemory(env *testscript.Env) error {
	dir, err := os.MkdirTemp("/dev/shm", "c")
	if err != nil {
		return err
	}
	env.Defer(func() { _ = os.RemoveAll(dir) })
	env.Setenv("XDG_RUNTIME_DIR", dir)
	env.Setenv("CASTLE_STATE_DIR", "")
	return os.Mkdir(env.WorkDir+"/store", 0o700)
}

// cut cuts the power of the machine: it kills a castle with its children, and empties the memory: cut NAME.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: cut name")
	}
	b := named(ts, args[0])
	ts.Check(b.cmd.Process.Kill())
	<-b.ended
	ts.Check(os.RemoveAll(ts.Getenv("XDG_RUNTIME_DIR") + "/castle"))
}

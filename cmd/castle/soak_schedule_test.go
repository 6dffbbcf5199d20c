//go:build integration

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The kinds of faults.
const (
	kill          = "kill"           // castle ends, alone or with all that it has started; or its machine
	syscallKill   = "syscall"        // a process ends at one of its system calls, if strace is installed
	mutation      = "mutation"       // a file of the state directory is damaged before the command
	second        = "second"         // somebody gives the same command meanwhile
	otherMachine  = "other-machine"  // likewise on another machine
	storeMutation = "store-mutation" // a value of the store is damaged before the command
)

// soakFault is one fault. The seed draws all that it does.
type soakFault struct {
	kind string
	seed [2]uint64
}

// soakSchedule is a round: what befalls a create and a destroy. It is drawn before the round begins, so that
// it does not depend on the time that things take.
type soakSchedule struct {
	create, destroy []soakFault
	whole           bool // the create comes to its end; else the cluster is given up half-way
	full            bool // the disk is full during another create
}

// mostFaults is how many faults may befall one command.
const mostFaults = 4

// schedule draws the next round.
func (k *soak) schedule() soakSchedule {
	k.drawn.Seed(k.seed, k.round)
	plan := soakSchedule{whole: k.rand.IntN(4) > 0, full: k.rand.IntN(4) == 0}
	var text []string
	for i, faults := range []*[]soakFault{&plan.create, &plan.destroy} {
		text = append(text, []string{"create:", "destroy:"}[i])
		for range k.rand.IntN(mostFaults + 1) {
			f := soakFault{kind: k.kinds[k.rand.IntN(len(k.kinds))],
				seed: [2]uint64{k.rand.Uint64(), k.rand.Uint64()}}
			*faults = append(*faults, f)
			text = append(text, f.kind)
		}
	}
	k.t.Logf("CASTLE_SOAK_SEED=%d CASTLE_SOAK_ROUND=%d: %s; whole %t, full disk %t", k.seed, k.round,
		strings.Join(text, " "), plan.whole, plan.full)
	return plan
}

// befall gives a command that a fault befalls. It reports whether the command has come to its end all the
// same.
func (k *soak) befall(f soakFault, command string, rest time.Duration) (ended bool) {
	switch f.kind {
	case syscallKill:
		if _, err := exec.LookPath("strace"); err == nil {
			return k.killAtCall(command)
		}
	case mutation:
		return k.mutate(command, k.files.state)
	case storeMutation:
		if ended = k.mutate(command, k.machine.store); !ended {
			k.moveOn()
		}
		return ended
	case second, otherMachine:
		return k.race(f.kind, command, rest)
	}
	a := k.start(command)
	m := k.moment(command, rest)
	if !k.await(a, m) {
		k.complete(a)
		return true
	}
	k.kill(a, m)
	k.moveOn()
	return false
}

// moveOn goes on after a fault: on another machine where the fault has ended it.
func (k *soak) moveOn() {
	if k.machine != nil {
		must(k.t, k.machine.replace())
		k.repository = k.machine.clone
	} else if k.rand.IntN(2) == 0 { // what survives of it may come to its end
		<-time.After(upTo(k.rand, 3*time.Second)) // a random pause: there is nothing to wait for
	}
}

// calls are the system calls at which a process ends: those that make something durable or visible.
var calls = []string{"renameat,renameat2,rename", "fsync,fdatasync", "unlinkat,unlink", "mkdirat,mkdir",
	"flock", "openat", "write", "connect"}

// killAtCall ends the first process, castle or one that it has started, which makes the nth of such a call in
// one of its threads.
func (k *soak) killAtCall(command string) (ended bool) {
	call, nth := calls[k.rand.IntN(len(calls))], 1+k.rand.IntN(1<<k.rand.IntN(8))
	// Not with --seccomp-bpf, with which strace 6.1 sends no signal.
	a := k.startBelow([]string{"strace", "-f", "-qqq", "-o", "/dev/null",
		"-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, nth)}, command)
	k.ends(a)
	k.t.Logf("%3d to go: %s, processes end at %s number %d: %v", k.kills-1, command, call, nth, a.err)
	k.hits.count(deaths, "at "+call)
	if a.err == nil {
		k.complete(a)
		return true
	}
	k.moveOn()
	return false
}

// ends waits for the end of a castle that may fail, which is not to be a crash.
func (k *soak) ends(a *attempt) {
	k.t.Helper()
	select {
	case <-a.ended:
	case <-time.After(soakPatience):
		a.cmd.Process.Signal(syscall.SIGQUIT) //nolint:errcheck // it says where it hangs, if it is there
		<-a.ended
		k.fail(a, "castle %s does not end", a.command)
	}
	output, err := os.ReadFile(a.output)
	must(k.t, err)
	if bytes.Contains(output, []byte("\ngoroutine ")) || bytes.Contains(output, []byte("panic: ")) {
		k.fail(a, "castle %s crashed", a.command)
	}
}

// race lets somebody else give the same command while castle is at work: it is refused because of the lock,
// or has nothing left to do.
func (k *soak) race(kind, command string, rest time.Duration) (ended bool) {
	a, m := k.start(command), k.moment(command, rest)
	if k.await(a, m) {
		var b *attempt
		if kind == otherMachine {
			b = k.startBelow(k.machine.other(), command)
		} else {
			b = k.start(command)
		}
		k.ends(b)
		k.t.Logf("%3d to go: %s, and a second one (%s, %s): %v", k.kills-1, command, kind, m.name, b.err)
		k.hits.count(deaths, "refused: "+kind)
		const locked = 7
		if exit, is := errors.AsType[*exec.ExitError](b.err); is && exit.ExitCode() != locked {
			k.fail(b, "the second castle %s: %v", command, b.err)
		}
	}
	k.complete(a)
	return true
}

// mutate damages one file below a folder, gives the commands, and mends the damage unless castle has done so.
// castle has to mend it or to refuse: later the world shows what it has taken for true.
func (k *soak) mutate(command, folder string) (ended bool) {
	file := k.harm.anyFile(folder)
	if file == "" {
		return false
	}
	undo, how := k.harm.mutate(file)
	look := k.start("status")
	k.ends(look)
	a := k.start(command)
	k.ends(a)
	name, err := filepath.Rel(folder, file)
	must(k.t, err)
	k.t.Logf("%3d to go: %s %s, status: %v, %s: %v", k.kills-1, name, how, look.err, command, a.err)
	k.hits.count(deaths, how)
	must(k.t, undo())
	if a.err == nil {
		k.complete(a)
	}
	return a.err == nil
}

// anyFile draws a file below a folder; "" if there is none. Logs and what Terraform can make again do not
// count.
func (h *soakHarm) anyFile(folder string) string {
	var all []string
	must(h.t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && d.IsDir() && (d.Name() == "work" || d.Name() == ".vgwlocks"):
			return fs.SkipDir // of Terraform, or of the S3 server
		case err == nil && d.Type().IsRegular() && filepath.Ext(path) != ".log":
			all = append(all, path)
		}
		return err
	}))
	if len(all) == 0 {
		return ""
	}
	return all[h.rand.IntN(len(all))]
}

// mutate damages a file, and returns what mends the damage if castle has not.
func (h *soakHarm) mutate(path string) (undo func() error, how string) {
	aside := filepath.Join(h.t.TempDir(), "aside")
	content, err := os.ReadFile(path)
	must(h.t, err)
	target := []byte("somebody else's\n")
	must(h.t, os.WriteFile(aside, target, 0o644))
	overwrite := func(text []byte) { must(h.t, os.WriteFile(path, text, 0o600)) }
	replace := func(place func() error) {
		must(h.t, os.Remove(path))
		must(h.t, place())
	}
	ways := []struct {
		name string
		do   func()
	}{
		{"deleted", func() { must(h.t, os.Remove(path)) }},
		{"emptied", func() { overwrite(nil) }},
		{"cut short", func() { overwrite(content[:h.rand.IntN(len(content)+1)]) }},
		{"with a flipped bit", func() { overwrite(flipped(h.rand, content)) }},
		{"a link", func() { replace(func() error { return os.Symlink(aside, path) }) }},
		{"a pipe", func() { replace(func() error { return syscall.Mkfifo(path, 0o600) }) }},
	}
	done := ways[h.rand.IntN(len(ways))]
	done.do()
	damaged, _ := os.Lstat(path) //nolint:errcheck // a deleted file has none
	return func() error {
		if now, err := os.ReadFile(aside); err != nil || !bytes.Equal(now, target) {
			return fmt.Errorf("the target of the link at %s is %q, %v", path, now, err)
		}
		now, err := os.Lstat(path)
		switch {
		case err == nil && (damaged == nil || !os.SameFile(now, damaged) ||
			!now.ModTime().Equal(damaged.ModTime())):
			return nil // castle has written it anew
		case err != nil && damaged != nil:
			return nil // castle has removed it
		case err == nil && !now.Mode().IsRegular():
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return nil // its folder is gone
		}
		return os.WriteFile(path, content, 0o600)
	}, done.name
}

// flipped returns a copy of a text with another bit.
func flipped(r *rand.Rand, text []byte) []byte {
	text = slices.Clone(text)
	if len(text) > 0 {
		text[r.IntN(len(text))] ^= 1 << r.IntN(8)
	}
	return text
}

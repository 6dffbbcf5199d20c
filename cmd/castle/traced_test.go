package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tracee is a program whose system calls are traced, not those of the programs that it starts.
type tracee struct {
	started func(pid int)
	entry   func(stop) (kill bool)
	exit    func(stop)
}

// stop is a thread that stands before or after a system call.
type stop struct {
	thread int
	call   systemCall
}

// systemCall is what PTRACE_GET_SYSCALL_INFO reports; see ptrace(2).
type systemCall struct {
	operation uint8
	_         [23]byte
	number    uint64
	args      [6]uint64
	_         [64]byte
}

const (
	getSyscallInfo   = 0x420e
	callEntry        = 1
	callExit         = 2
	systemCallTrap   = unix.SIGTRAP | 0x80
	exitCannotBeDone = 2
)

// run runs a program to its end, or kills it where entry says so. It ends this process with exitCannotBeDone
// if the system does not allow the program to be traced.
func (t *tracee) run(args []string) (killed bool, status unix.WaitStatus) {
	runtime.LockOSThread() // the kernel knows one thread as the tracer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitCannotBeDone)
	}
	pid := cmd.Process.Pid
	_, err := unix.Wait4(pid, &status, 0, nil)
	check(err)
	check(unix.PtraceSetOptions(pid,
		unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL))
	if t.started != nil {
		t.started(pid)
	}
	entered := map[int]systemCall{} // by thread
	for thread := pid; ; {
		signal := 0
		switch s := status.StopSignal(); {
		case !status.Stopped():
		case s == systemCallTrap:
			if !killed && t.call(thread, entered) {
				check(cmd.Process.Kill())
				killed = true
			}
		case s != unix.SIGTRAP && s != unix.SIGSTOP: // those are the tracer's
			signal = int(s)
		}
		if status.Stopped() && !killed {
			if err := unix.PtraceSyscall(thread, signal); !errors.Is(err, unix.ESRCH) { // it may have ended
				check(err)
			}
		}
		thread, err = unix.Wait4(-1, &status, unix.WALL, nil)
		check(err)
		if thread == pid && (status.Exited() || status.Signaled()) {
			return killed, status
		}
	}
}

// call looks at the system call of a stopped thread.
func (t *tracee) call(thread int, entered map[int]systemCall) (kill bool) {
	var call systemCall
	_, _, failed := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(thread), unsafe.Sizeof(call),
		uintptr(unsafe.Pointer(&call)), 0, 0)
	switch {
	case failed != 0:
	case call.operation == callEntry:
		entered[thread] = call
		return t.entry != nil && t.entry(stop{thread, call})
	case call.operation == callExit && t.exit != nil:
		t.exit(stop{thread, entered[thread]})
	}
	return false
}

// clockAhead is the program `clock-ahead DURATION program args...`: for the program it is that much later, as
// on a machine whose clock is about to be set back.
func clockAhead() {
	ahead, err := time.ParseDuration(os.Args[1])
	check(err)
	t := &tracee{started: withoutVDSO, exit: func(s stop) {
		if s.call.number != unix.SYS_CLOCK_GETTIME || s.call.args[0] != unix.CLOCK_REALTIME {
			return
		}
		now := make([]byte, 16)
		_, err := unix.PtracePeekData(s.thread, uintptr(s.call.args[1]), now)
		check(err)
		seconds := binary.NativeEndian.Uint64(now) + uint64(ahead/time.Second)
		binary.NativeEndian.PutUint64(now, seconds)
		_, err = unix.PtracePokeData(s.thread, uintptr(s.call.args[1]), now)
		check(err)
	}}
	_, status := t.run(os.Args[2:])
	os.Exit(status.ExitStatus())
}

// withoutVDSO has a program that has just been started ask the kernel for the time by system calls: it no
// longer finds the address of the kernel's own library among what the kernel hands it (getauxval(3)).
func withoutVDSO(pid int) {
	const atIgnore, atSysinfoEhdr, startStack = 1, 33, 28
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(err)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // from the third one on
	at, err := strconv.ParseUint(string(fields[startStack-3]), 10, 64)
	check(err)
	word := func() uint64 {
		value := make([]byte, 8)
		_, err := unix.PtracePeekData(pid, uintptr(at), value)
		check(err)
		at += 8
		return binary.NativeEndian.Uint64(value)
	}
	arguments := word()
	at += 8 * (arguments + 1) // and the 0 after them
	for word() != 0 {         // the environment
	}
	for {
		switch key := word(); key {
		case 0:
			return
		case atSysinfoEhdr:
			ignored := binary.NativeEndian.AppendUint64(nil, atIgnore)
			_, err := unix.PtracePokeData(pid, uintptr(at-8), ignored)
			check(err)
			return
		default:
			word()
		}
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// killedAtWrite is the program `killed-at-write N program args...`. It kills the program where its temporary
// file of its Nth atomic write is complete and has not replaced the file yet, or become the file of a store.
// The exit code is 1 if the program ended before that, and 2 if the system does not allow it to be traced.
func killedAtWrite() {
	nth, err := strconv.Atoi(os.Args[1])
	check(err)
	runtime.LockOSThread() // the kernel knows one thread as the tracer
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	_, err = unix.Wait4(pid, &status, 0, nil)
	check(err)
	check(unix.PtraceSetOptions(pid,
		unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL))
	for thread, killed := pid, false; ; {
		signal := 0
		switch stop := status.StopSignal(); {
		case !status.Stopped():
		case stop == unix.SIGTRAP|0x80:
			if file := replacing(thread); strings.Contains(filepath.Base(file), ".castle-") {
				if nth--; nth == 0 {
					fmt.Fprintln(os.Stderr, "killed at", file)
					check(cmd.Process.Kill())
					killed = true
				}
			}
		case stop != unix.SIGTRAP && stop != unix.SIGSTOP: // those are the tracer's
			signal = int(stop)
		}
		if status.Stopped() && !killed {
			if err := unix.PtraceSyscall(thread, signal); !errors.Is(err, unix.ESRCH) { // it may have ended
				check(err)
			}
		}
		thread, err = unix.Wait4(-1, &status, unix.WALL, nil)
		check(err)
		if thread == pid && (status.Exited() || status.Signaled()) {
			if killed {
				os.Exit(0)
			}
			os.Exit(1)
		}
	}
}

// replacing returns the file that a thread is about to rename or to link, or "".
func replacing(thread int) string {
	var call struct {
		operation uint8
		_         [23]byte
		number    uint64
		args      [6]uint64
		_         [64]byte
	}
	const getSyscallInfo, entry = 0x420e, 1
	_, _, failed := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(thread), unsafe.Sizeof(call),
		uintptr(unsafe.Pointer(&call)), 0, 0)
	if failed != 0 || call.operation != entry ||
		call.number != unix.SYS_RENAMEAT && call.number != unix.SYS_RENAMEAT2 &&
			call.number != unix.SYS_LINKAT {
		return ""
	}
	name := make([]byte, unix.PathMax)
	count, err := unix.PtracePeekData(thread, uintptr(call.args[1]), name)
	if err != nil && count == 0 {
		return ""
	}
	name, _, _ = bytes.Cut(name[:count], []byte{0})
	return string(name)
}

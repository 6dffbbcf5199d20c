package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Child returns the attributes of a child in a process group of its own, which no Ctrl-C reaches. macOS ends
// no child with its parent: the next run ends what a killed castle has left.
func Child(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Read reads the entry of one process.
func Read(pid int) (Process, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	switch {
	case errors.Is(err, unix.EIO): // an answer without an entry
		return Process{}, unix.ESRCH
	case err != nil:
		return Process{}, err
	}
	const zombie = 5 // SZOMB of sys/proc.h
	began := info.Proc.P_starttime
	return Process{PID: pid, Parent: int(info.Eproc.Ppid), Name: unix.ByteSliceToString(info.Proc.P_comm[:]),
		Start: uint64(began.Sec)*1e6 + uint64(began.Usec), Ended: info.Proc.P_stat == zombie}, nil
}

// HasOpen reports whether the process has a file open. On macOS that is unknown: an error.
func (p Process) HasOpen(*os.File) (bool, error) { return false, errors.ErrUnsupported }

// BootID changes each time the machine starts. Start times are comparable only within one boot.
func BootID() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid") // empty if it cannot be read
	return id
}

// Table identifies the process table that this process sees: macOS has one.
func Table() (string, error) { return "macOS", nil }

// pids returns the id of every process.
func pids() ([]int, error) {
	table, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	var all []int
	for _, info := range table {
		all = append(all, int(info.Proc.P_pid))
	}
	return all, err
}

// environ returns the environment with which a process began; its entries end with NUL. The block begins with
// the number of arguments, the program's path, NULs that align it, and the arguments.
func environ(pid int) ([]byte, error) {
	block, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(block) < 4 {
		return nil, err
	}
	count := binary.NativeEndian.Uint32(block)
	_, block, _ = bytes.Cut(block[4:], []byte{0})
	block = bytes.TrimLeft(block, "\x00")
	for range count {
		_, block, _ = bytes.Cut(block, []byte{0})
	}
	return block, nil
}

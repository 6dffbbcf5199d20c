package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Child returns the attributes of a child in a process group of its own, which no Ctrl-C reaches. The kernel
// sends it a signal when the thread that started it ends, as it does when castle is killed.
func Child(signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: signal}
}

// Read reads the entry of one process.
func Read(pid int) (Process, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return Process{}, err
	}
	// "12 (name) S 1 …": the name may contain spaces and brackets.
	const state, parent, start = 0, 1, 19 // proc_pid_stat(5) counts from pid = 1
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	if open < 0 || end < open || len(fields) <= start {
		return Process{}, fmt.Errorf("%s: unknown format", path)
	}
	p := Process{PID: pid, Name: string(data[open+1 : end]), Ended: strings.Contains("ZXx", fields[state])}
	var parentErr, startErr error
	p.Parent, parentErr = strconv.Atoi(fields[parent])
	p.Start, startErr = strconv.ParseUint(fields[start], 10, 64)
	if err := errors.Join(parentErr, startErr); err != nil {
		return Process{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// HasOpen reports whether the process has a file open. For another user's process that is unknown: an error.
func (p Process) HasOpen(file *os.File) (bool, error) {
	wanted, err := file.Stat()
	if err != nil {
		return false, err
	}
	dir := fmt.Sprintf("/proc/%d/fd", p.PID)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, statErr := os.Stat(filepath.Join(dir, e.Name()))
		if statErr == nil && os.SameFile(info, wanted) {
			return true, nil
		}
		if !errors.Is(statErr, fs.ErrNotExist) { // closed meanwhile, or deleted
			err = errors.Join(err, statErr)
		}
	}
	return false, err
}

// BootID changes each time the machine starts. Start times are comparable only within one boot.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // empty if it cannot be read
	return strings.TrimSpace(string(id))
}

// Table identifies the process table that this process sees, among those of one machine.
func Table() (string, error) { return os.Readlink("/proc/self/ns/pid") }

// pids returns the id of every process.
func pids() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all, err
}

// environ returns the environment with which a process began; its entries end with NUL.
func environ(pid int) ([]byte, error) { return os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) }

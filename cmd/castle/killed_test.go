package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killedAtWrite is the program `killed-at-write N program args...`. It kills the program where its temporary
// file of its Nth atomic write is complete and has not replaced the file yet, or become the file of a store.
// The exit code is 1 if the program ended before that, and 2 if the system does not allow it to be traced.
func killedAtWrite() {
	killedAt(func(s stop) string {
		switch s.call.number {
		case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
			if file := s.path(1); strings.Contains(filepath.Base(file), ".castle-") {
				return file
			}
		}
		return ""
	})
}

// killedAtChange is the program `killed-at-change N program args...`, which kills a program before its Nth
// system call that changes a folder or makes something durable. The exit codes are killedAtWrite's.
func killedAtChange() {
	killedAt(func(s stop) string {
		switch s.call.number {
		case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT, unix.SYS_MKDIRAT:
			return s.path(1)
		case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
			file := fmt.Sprintf("/proc/%d/fd/%d", s.thread, s.call.args[0])
			name, _ := os.Readlink(file) //nolint:errcheck // then it is none
			return name
		}
		return ""
	})
}

// killedAt kills a program before its Nth system call that changes something, which changes names.
func killedAt(changes func(stop) string) {
	nth, err := strconv.Atoi(os.Args[1])
	check(err)
	t := &tracee{entry: func(s stop) (kill bool) {
		file := changes(s)
		if file == "" {
			return false
		}
		if nth--; nth != 0 {
			return false
		}
		fmt.Fprintln(os.Stderr, "killed at", file)
		return true
	}}
	if killed, _ := t.run(os.Args[2:]); !killed {
		os.Exit(1)
	}
}

// path is an argument of a system call that is one.
func (s stop) path(argument int) string {
	name := make([]byte, unix.PathMax)
	count, err := unix.PtracePeekData(s.thread, uintptr(s.call.args[argument]), name)
	if err != nil && count == 0 {
		return ""
	}
	name, _, _ = bytes.Cut(name[:count], []byte{0})
	return string(name)
}

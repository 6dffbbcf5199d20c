package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of times in /proc/PID/stat: the kernel's USER_HZ, 100 wherever Go runs.
const tick = 10 * time.Millisecond

// The peak of a running process is read every millisecond at first, because a short command soon ends, and
// then less often. It is gone when the process has ended.
const (
	memoryFirst = time.Millisecond
	memoryEvery = 20 * time.Millisecond
	memoryEarly = 100 // readings
)

// run runs a command and measures it. Its output is part of the error if it fails.
func run(ctx context.Context, dir string, env []string, args ...string) (measure, []byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	out, err := os.CreateTemp("", "output") // a file: a pipe would be a second process to wait for
	if err != nil {
		return measure{}, nil, err
	}
	defer func() { out.Close(); os.Remove(out.Name()) }()
	cmd.Stdout, cmd.Stderr = out, out
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return measure{}, nil, err
	}
	var m measure
	peak := make(chan int64)
	ended := make(chan struct{})
	go func() { peak <- watchMemory(cmd.Process.Pid, ended) }()
	// Waits without reaping: the kernel forgets the times of a process that is reaped.
	for {
		err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	m.Wall = time.Since(begun)
	close(ended)
	m.Memory = <-peak
	if err == nil {
		err = m.readTimes(cmd.Process.Pid)
	}
	err = errors.Join(cmd.Wait(), err)
	text, readErr := os.ReadFile(out.Name())
	if err = errors.Join(err, readErr); err != nil {
		return m, text, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return m, text, nil
}

// readTimes reads the CPU times of a process and of its children that it has waited for.
func (m *measure) readTimes(pid int) error {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return err
	}
	return m.parseTimes(stat)
}

// parseTimes reads utime, stime, cutime and cstime: the fields 14 to 17. The name in field 2 may have spaces.
func (m *measure) parseTimes(stat []byte) (err error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return fmt.Errorf("/proc/PID/stat has %d fields after the name", len(fields))
	}
	var times [4]time.Duration
	for i := range times {
		n, failed := strconv.ParseInt(fields[11+i], 10, 64)
		times[i], err = time.Duration(n)*tick, errors.Join(err, failed)
	}
	m.Own, m.Kernel, m.Children = times[0]+times[1], times[1], times[2]+times[3]
	return err
}

// fewReadings of a peak may all be from before the command was loaded. A process that has ended has none.
const fewReadings = 3

// watchMemory reads the peak of a process until it has ended; 0 is unknown, because it has ended too soon.
func watchMemory(pid int, ended <-chan struct{}) (peak int64) {
	every := time.NewTicker(memoryFirst)
	defer every.Stop()
	for readings := 0; ; {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if now := parsePeak(status); err == nil && now > 0 {
			peak = max(peak, now)
			readings++
		}
		if readings == memoryEarly {
			every.Reset(memoryEvery)
		}
		select {
		case <-ended:
			if readings < fewReadings {
				return 0
			}
			return peak
		case <-every.C:
		}
	}
}

// parsePeak returns the VmHWM of /proc/PID/status in bytes, or 0.
func parsePeak(status []byte) int64 {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

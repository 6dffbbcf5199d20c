package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// process is what /proc says of one.
type process struct {
	pid, parent int
	start       uint64 // ticks since boot
	name        string
}

func (p process) String() string { return fmt.Sprintf("%s (process %d)", p.name, p.pid) }

func readProcess(pid int) (process, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return process{}, err
	}
	// "12 (name) S 1 …": the name may contain spaces and brackets.
	text := string(data)
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return process{}, fmt.Errorf("%s: not understood", path)
	}
	const parent, start = 1, 19 // proc_pid_stat(5) counts from pid = 1; here state is 0
	fields := strings.Fields(text[end+1:])
	if len(fields) <= start {
		return process{}, fmt.Errorf("%s: not understood", path)
	}
	p := process{pid: pid, name: text[open+1 : end]}
	if p.parent, err = strconv.Atoi(fields[parent]); err != nil {
		return process{}, fmt.Errorf("%s: %w", path, err)
	}
	if p.start, err = strconv.ParseUint(fields[start], 10, 64); err != nil {
		return process{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// bootID changes with every start of the machine, so that ticks of two starts are never compared.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// How long EndSurvivors waits for the killed to be gone: only a process that
// hangs in the kernel needs longer than an instant.
const (
	survivorsBound = 15 * time.Second
	survivorsPause = 10 * time.Millisecond
)

// EndSurvivors kills every process that carries CASTLE_RUN=run in its
// environment, such as a Terraform whose castle is dead, and returns what it
// ended once all of them are gone. It spares this process and its ancestors.
func EndSurvivors(ctx context.Context, run string) ([]string, error) {
	if run == "" {
		return nil, errors.New("survivors: no run named")
	}
	ctx, stop := context.WithTimeoutCause(ctx, survivorsBound, errors.New("still there after being killed"))
	defer stop()
	spared := ancestry()
	var ended []string
	for {
		alive, err := carriers("CASTLE_RUN="+run, spared)
		if err != nil || len(alive) == 0 {
			return ended, err
		}
		for _, p := range alive {
			if !slices.Contains(ended, p.String()) {
				ended = append(ended, p.String())
			}
			if err := kill(p, "CASTLE_RUN="+run); err != nil {
				return ended, err
			}
		}
		select {
		case <-ctx.Done():
			return ended, fmt.Errorf("survivors of run %s: %v: %w", run, alive, context.Cause(ctx))
		case <-time.After(survivorsPause):
		}
	}
}

// ancestry returns this process and those that started it.
func ancestry() map[int]bool {
	all := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !all[pid]; {
		all[pid] = true
		p, err := readProcess(pid)
		if err != nil {
			break
		}
		pid = p.parent
	}
	return all
}

// carriers returns the processes that have entry in their environment. Those of
// other users cannot be read, and cannot be ours. A zombie has none any more.
func carriers(entry string, spared map[int]bool) ([]process, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || spared[pid] || !carries(pid, entry) {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

func carries(pid int, entry string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(e []byte) bool { return string(e) == entry })
}

// kill ends p if its pid still belongs to it: os.FindProcess holds on to the
// process itself, so whoever carries the entry after that is the one that dies.
func kill(p process, entry string) error {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	if carries(p.pid, entry) {
		err = handle.Kill()
	}
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return errors.Join(err, handle.Release())
}

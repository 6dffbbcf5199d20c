package terraform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

const (
	killBound   = 15 * time.Second      // only a process that hangs in the kernel outlives SIGKILL longer
	settleGrace = 5 * time.Second       // for a Terraform that was interrupted while it started
	processPoll = 20 * time.Millisecond // between two looks at the process table
)

// Kill ends at once whatever runs for this root: Terraform, its providers and
// their children. It is the last resort: what they are doing is lost.
func (r *Root) Kill(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, killBound, errors.New("still there after being killed"))
	defer stop()
	for {
		pids, err := r.processes()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := r.kill(pid); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v: %w", pids, context.Cause(ctx))
		case <-time.After(processPoll):
		}
	}
}

// settle returns when nothing runs for this root any more. After a cancelled
// command that is so at once, unless it was cancelled in the instant in which it
// started: terraform-exec then does not wait for its end. It has been interrupted
// before it could begin anything, so a short grace is enough.
func (r *Root) settle() error {
	for end := time.Now().Add(settleGrace); time.Now().Before(end); time.Sleep(processPoll) {
		pids, err := r.processes()
		if err != nil || len(pids) == 0 {
			return err
		}
	}
	return r.Kill(context.Background())
}

// processes finds what runs for this root by what its commands have in their
// environment and hand down. terraform-exec does not tell a child's pid.
func (r *Root) processes() ([]int, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, d := range dirs {
		if pid, err := strconv.Atoi(d.Name()); err == nil && pid != os.Getpid() && r.owns(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// owns is false for a process that has ended, waited for or not: it has no environment any more.
func (r *Root) owns(pid int) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	run, data := []byte("CASTLE_RUN="+r.Run), []byte("TF_DATA_DIR="+r.dataDir())
	var sameRun, sameRoot bool
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		sameRun = sameRun || bytes.Equal(entry, run)
		sameRoot = sameRoot || bytes.Equal(entry, data)
	}
	return sameRun && sameRoot
}

// kill asks again once it holds on to the process: by then its pid may be somebody else's.
func (r *Root) kill(pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if r.owns(pid) {
		err = process.Kill()
	}
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return errors.Join(err, process.Release())
}

package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// start runs a shell with a child, both of the run. It waits until the child has
// answered: before that the child may still be a copy of the shell.
func start(t *testing.T, run string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "exec 3<&0; cat <&3 & wait")
	cmd.Env = append(os.Environ(), "CASTLE_RUN="+run)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // gone already, if all is well
	_, err = in.Write([]byte("started\n"))
	if _, silent := bufio.NewReader(out).ReadString('\n'); err != nil || silent != nil {
		t.Fatal(err, silent)
	}
	return cmd
}

func TestEndRunEndsAllOfOneRunAndNothingElse(t *testing.T) {
	run := fmt.Sprintf("test-%d", os.Getpid())
	dead, other := start(t, run), start(t, run+"-other")
	ended, err := EndRun(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ended)
	shell := fmt.Sprintf("sh (process %d)", dead.Process.Pid)
	if len(ended) != 2 || !strings.HasPrefix(ended[0], "cat (process ") || ended[1] != shell {
		t.Errorf("ended: %q", ended)
	}
	var exit *exec.ExitError
	if err := dead.Wait(); !errors.As(err, &exit) ||
		exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the survivor ended with %v", err)
	}
	if left, err := OfRun(run); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if left, err := OfRun(run + "-other"); err != nil || len(left) != 2 {
		t.Errorf("of the other run are left: %v, %v", left, err)
	}
	if ended, err := EndRun(t.Context(), run+"-other"); err != nil || len(ended) != 2 {
		t.Errorf("other run: %q, %v", ended, err)
	}
	if err := other.Wait(); err == nil {
		t.Error("the other run's shell ended well")
	}
}

func TestEndRunWithoutProcessesOrARun(t *testing.T) {
	if ended, err := EndRun(t.Context(), "no such run"); err != nil || len(ended) != 0 {
		t.Errorf("got %q, %v", ended, err)
	}
	if _, err := EndRun(t.Context(), ""); err == nil {
		t.Error("without a run: no error")
	}
}

func TestEndRunSparesItselfAndItsAncestors(t *testing.T) {
	spared := ancestry()
	for _, pid := range []int{os.Getpid(), os.Getppid()} {
		if !spared[pid] {
			t.Errorf("process %d is not spared: %v", pid, spared)
		}
	}
}

func TestReadHandlesNamesWithSpacesAndBrackets(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	link := t.TempDir() + "/a ) b (c"
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, link); err != nil {
		t.Fatal(err)
	}
	cmd.Path = link
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // it is killed
	defer cmd.Process.Kill()
	p, err := Read(cmd.Process.Pid)
	if err != nil || p.Name != "a ) b (c" || p.Parent != os.Getpid() || p.Start == 0 {
		t.Errorf("got %+v, %v", p, err)
	}
}

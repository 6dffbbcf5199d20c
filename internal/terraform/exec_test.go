package terraform

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestExecPassesOnOutputsAndTheExitCode(t *testing.T) {
	r, home := fake(t)
	r.Env = append(r.Env, "TF_VAR_x=1")
	writeFile(t, filepath.Join(home, "console.out"), "out")
	writeFile(t, filepath.Join(home, "console.err"), "err")
	writeFile(t, filepath.Join(home, "console.exit"), "7")
	var out, errs bytes.Buffer
	code, err := r.Exec(t.Context(), []string{"console", "-no-color"}, strings.NewReader("in"), &out, &errs)
	if code != 7 || err != nil || out.String() != "out" || errs.String() != "err" {
		t.Errorf("got %d, %v, %q, %q", code, err, out.String(), errs.String())
	}
	lines, all := calls(t, home)
	if len(lines) != 1 || lines[0] != "console -no-color" || all[0].Dir != r.Dir {
		t.Errorf("calls: %+v", all)
	}
	env := strings.Join(all[0].Env, "\n")
	if strings.Contains(env, "TF_VAR_x") || !strings.Contains(env, "CASTLE_RUN="+r.Run) {
		t.Errorf("environment: %s", env)
	}
}

func TestACancelledExecIsInterruptedOnceAndReturnsTheCause(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "apply.do"), "wait for interrupt")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupt signal received")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	output := make(chan string)
	go func() {
		lines := bufio.NewScanner(out)
		lines.Scan()
		cancel(cause) // it has started
		lines.Scan()
		output <- lines.Text()
	}()
	code, err := r.Exec(ctx, []string{"apply"}, strings.NewReader(""), in, os.Stderr)
	if code != 1 || err != cause {
		t.Errorf("got %d, %v", code, err)
	}
	if got := <-output; got != "Interrupted once" {
		t.Errorf("got %q", got)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
}

// At a real terminal, Ctrl-C goes to the foreground job: Terraform must get it
// once, castle not at all, and castle must get the terminal back.
func TestCtrlCAtATerminalReachesTerraformOnceAndNotCastle(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "apply.do"), "wait for interrupt")
	master, terminal := openTerminal(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	castle := exec.Command(self)
	castle.Env = append(os.Environ(), "CASTLE_TEST_TERMINAL="+r.Binary.Path, "CASTLE_TEST_DIR="+r.Dir)
	castle.Stdin, castle.Stdout, castle.Stderr = terminal, terminal, terminal
	castle.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := castle.Start(); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	lines := bufio.NewScanner(master)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		fmt.Fprintln(&all, line)
		if strings.Contains(line, "apply_start") {
			if _, err := master.Write([]byte{3}); err != nil { // Ctrl-C
				t.Fatal(err)
			}
		}
		if strings.HasPrefix(line, "castle: ") {
			break
		}
	}
	if err := castle.Wait(); err != nil {
		t.Errorf("castle: %v", err)
	}
	for _, want := range []string{"Interrupted once", "castle: exit 1, error <nil>, foreground again true"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("terminal lacks %q:\n%s", want, all.String())
		}
	}
}

// execAtTerminal is the castle of the test above.
func execAtTerminal() int {
	dir := os.Getenv("CASTLE_TEST_DIR")
	r := &Root{Binary: Binary{Path: os.Getenv("CASTLE_TEST_TERMINAL")}, Dir: dir, StatePath: dir + "/none",
		Env: os.Environ()}
	code, err := r.Exec(context.Background(), []string{"apply"}, os.Stdin, os.Stdout, os.Stderr)
	group, ttyErr := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	fmt.Printf("castle: exit %d, error %v, foreground again %v\n", code, err, ttyErr == nil &&
		group == unix.Getpgrp())
	return 0
}

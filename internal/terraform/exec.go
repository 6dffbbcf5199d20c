package terraform

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exec runs any Terraform command in the work directory, with the same environment as
// every other command and the caller's input and output. It returns Terraform's exit
// code; a cancelled command has the context's cause as error.
//
// At a terminal Terraform becomes the foreground job: it can prompt, and a Ctrl-C
// reaches Terraform only.
func (r *Root) Exec(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operation.begin(strings.Join(args[:min(1, len(args))], ""))
	defer r.operation.end()
	cmd := exec.CommandContext(ctx, r.Binary.Path, args...)
	cmd.Dir, cmd.Env = r.Dir, entries(r.environment())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = r.waitDelay()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	tty, ours := terminal(stdin)
	if ours {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, tty
	}
	runtime.LockOSThread() // as in command
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if ours {
		err = errors.Join(err, reclaim(tty))
	}
	err = errors.Join(err, r.workdir().makePrivate())
	if ctx.Err() != nil {
		return cmd.ProcessState.ExitCode(), context.Cause(ctx)
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// terminal returns stdin's descriptor if it is a terminal whose foreground job is this process.
func terminal(stdin io.Reader) (fd int, ours bool) {
	f, ok := stdin.(*os.File)
	if !ok {
		return 0, false
	}
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return int(f.Fd()), err == nil && group == unix.Getpgrp()
}

// reclaim makes this process the terminal's foreground job again. It must ignore the
// signal that stops a background job that does so.
func reclaim(tty int) error {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, unix.Getpgrp())
}

package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/term"
)

const (
	initArg        = "namespace-init" // how Run calls this program: as Init
	mountNamespace = "/proc/self/ns/mnt"
)

// order is the message from Run to Init.
type order struct {
	Outside string // the caller's network namespace
	Mounts  string // and its mount namespace
	Spec    Spec
	Args    []string
}

// Run runs args in namespaces of its own and returns its exit code. The program must call Init
// first when IsInit returns true. An interrupt reaches the command once: from the terminal if it
// has one, otherwise from Run.
func Run(ctx context.Context, s Spec, args, env []string) (int, error) {
	outside, err := Network()
	if err != nil {
		return 0, err
	}
	mounts, err := os.Readlink(mountNamespace)
	if err != nil {
		return 0, err
	}
	content, err := json.Marshal(order{Outside: outside, Mounts: mounts, Spec: s, Args: args})
	if err != nil {
		return 0, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	c := exec.Command("/proc/self/exe", initArg)
	c.Env, c.ExtraFiles = env, []*os.File{r}
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = attributes(terminal)

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	// The kernel ends the child with the thread that started it, so this one must last.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.Start(); err != nil {
		return 0, errors.Join(fmt.Errorf("namespaces: %w", err), w.Close(), hint(err))
	}
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		return 0, errors.Join(err, c.Process.Kill(), c.Wait())
	}
	done := make(chan struct{})
	defer close(done)
	go pass(ctx, signals, done, c.Process, terminal)
	err = c.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// attributes requests the namespaces, as root of a user namespace if necessary.
func attributes(terminal bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    !terminal,
	}
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return a
}

// pass forwards the signals that the child does not receive by itself. A terminal interrupts its
// whole foreground process group; otherwise the child leads a group of its own.
func pass(ctx context.Context, signals <-chan os.Signal, done <-chan struct{}, child *os.Process,
	terminal bool) {
	group := -child.Pid
	if terminal {
		group = 0
	}
	ended := ctx.Done()
	for {
		select {
		case <-done:
			return
		case <-ended:
			ended = nil
		case s := <-signals:
			if terminal && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
				continue
			}
		}
		if err := syscall.Kill(group, syscall.SIGINT); err != nil {
			return // it is gone already
		}
	}
}

// IsInit reports whether Run started this program.
func IsInit(args []string) bool { return len(args) == 2 && args[1] == initArg }

// Init sets up the namespaces, proves them and runs the command; its result is the program's exit
// code. It writes an error that precedes the command to stderr.
func Init(stderr io.Writer) int {
	code, err := enter()
	if err != nil {
		fmt.Fprintf(stderr, "castle-lab: %v\n", err)
		return 1
	}
	return code
}

func enter() (int, error) {
	var o order
	from := os.NewFile(3, "order")
	if err := errors.Join(json.NewDecoder(from).Decode(&o), from.Close()); err != nil {
		return 0, fmt.Errorf("order: %w", err)
	}
	// Nothing is mounted or addressed before it is sure that it happens inside.
	if err := apart(o); err != nil {
		return 0, err
	}
	if err := o.Spec.mount(); err != nil {
		return 0, errors.Join(err, hint(err))
	}
	if err := o.Spec.address(); err != nil {
		return 0, err
	}
	if _, err := Prove(o.Outside); err != nil {
		return 0, err
	}
	return supervise(o.Args)
}

// apart checks that neither the network nor the mounts are the caller's.
func apart(o order) error {
	if _, err := separate(o.Outside); err != nil {
		return err
	}
	mounts, err := os.Readlink(mountNamespace)
	if err == nil && mounts == o.Mounts {
		err = fmt.Errorf("mounts: this process is still in the namespace outside, %s", mounts)
	}
	return err
}

// supervise runs the command as the first process of a process namespace must:
// it reaps every orphan, and leaves signals to those whom they concern.
func supervise(args []string) (int, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	p, err := os.StartProcess(path, args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", path, err)
		case pid == p.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == p.Pid && status.Exited():
			return status.ExitStatus(), nil
		}
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// interruptible are the commands of scripts that interrupt castle:
//
//	begin NAME ARGS…               starts castle as the leader of a group
//	begin -terminal NAME ARGS…     starts it in the foreground of a terminal
//	says NAME REGEXP               waits until its output matches
//	interrupt NAME int|term|hup    sends it a signal
//	interrupt NAME stop|cont       freezes it, as a laptop that sleeps does, or has it go on
//	interrupt NAME group-term      sends SIGTERM to its process group
//	interrupt NAME ctrl-c|ctrl-d   types Ctrl-C at the terminal, or Ctrl-D
//	type NAME WORDS…               types a line at the terminal
//	echoes NAME                    asserts that the terminal echoes input
//	ended NAME CODE                waits for its end and asserts the exit code
func interruptible() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){"begin": begin, "says": says,
		"interrupt": interrupt, "type": typeLine, "echoes": echoes, "ended": ended}
}

// begun is a castle that runs beside its script.
type begun struct {
	cmd            *exec.Cmd
	terminal       *os.File // the side of the user
	stdout, stderr printed
	ended          chan struct{}
	heard          chan struct{} // all that was printed at the terminal
	err            error
}

type begunKey struct{}

// patience is how long a script waits for anything.
const patience = time.Minute

func begin(ts *testscript.TestScript, neg bool, args []string) {
	terminal := len(args) > 0 && args[0] == "-terminal"
	if terminal {
		args = args[1:]
	}
	if neg || len(args) < 2 {
		ts.Fatalf("usage: begin [-terminal] name args...")
	}
	ts.Check(ts.Exec("which", "castle"))
	path := strings.TrimSpace(ts.ReadFile("stdout"))
	b := &begun{cmd: exec.Command(path, args[1:]...), ended: make(chan struct{}), heard: make(chan struct{})}
	b.cmd.Dir, b.cmd.Env = ts.MkAbs("."), environ(ts)
	b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if terminal {
		ts.Check(b.openTerminal())
	}
	ts.Check(b.cmd.Start())
	if terminal {
		ts.Check(b.cmd.Stdin.(*os.File).Close())
		go func() {
			defer close(b.heard)
			io.Copy(&b.stderr, b.terminal) //nolint:errcheck // it ends with the terminal
		}()
	} else {
		close(b.heard)
	}
	go func() {
		b.err = b.cmd.Wait()
		close(b.ended)
	}()
	ts.Defer(func() {
		_ = b.cmd.Process.Kill() // as a rule it has ended
		<-b.ended
		ts.Logf("%s has printed:\n%s", args[0], b.stderr.String()) // the log is shown where a script fails
	})
	ts.Value(begunKey{}).(map[string]*begun)[args[0]] = b
}

// environ is the script's environment, which only its programs know.
func environ(ts *testscript.TestScript) []string {
	ts.Check(ts.Exec("env", "-0"))
	return strings.Split(strings.TrimSuffix(ts.ReadFile("stdout"), "\x00"), "\x00")
}

// openTerminal makes a terminal of the command's standard streams.
func (b *begun) openTerminal() (err error) {
	if b.terminal, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(int(b.terminal.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	number, err := unix.IoctlGetInt(int(b.terminal.Fd()), unix.TIOCGPTN)
	if err != nil {
		return err
	}
	inner, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = inner, inner, inner
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return err
}

func says(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: says name regexp")
	}
	b := named(ts, args[0])
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	printed := func() bool {
		return want.MatchString(b.stderr.String()) || want.MatchString(b.stdout.String())
	}
	if !eventually(patience, 10*time.Millisecond, printed) {
		ts.Fatalf("%s never printed %s:\n%s%s", args[0], args[1], b.stderr.String(), b.stdout.String())
	}
}

func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: interrupt name int|term|hup|stop|cont|group-term|ctrl-c|ctrl-d")
	}
	b := named(ts, args[0])
	switch args[1] {
	case "int":
		ts.Check(b.cmd.Process.Signal(syscall.SIGINT))
	case "term":
		ts.Check(b.cmd.Process.Signal(syscall.SIGTERM))
	case "hup":
		ts.Check(b.cmd.Process.Signal(syscall.SIGHUP))
	case "stop":
		ts.Check(b.cmd.Process.Signal(syscall.SIGSTOP))
	case "cont":
		ts.Check(b.cmd.Process.Signal(syscall.SIGCONT))
	case "group-term":
		ts.Check(syscall.Kill(-b.cmd.Process.Pid, syscall.SIGTERM))
	case "ctrl-c":
		_, err := b.terminal.Write([]byte{3})
		ts.Check(err)
	case "ctrl-d":
		_, err := b.terminal.Write([]byte{4})
		ts.Check(err)
	default:
		ts.Fatalf("interrupt: unknown %q", args[1])
	}
}

func typeLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: type name [words...]")
	}
	_, err := named(ts, args[0]).terminal.WriteString(strings.Join(args[1:], " ") + "\n")
	ts.Check(err)
}

func echoes(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: echoes name")
	}
	state, err := unix.IoctlGetTermios(int(named(ts, args[0]).terminal.Fd()), unix.TCGETS)
	ts.Check(err)
	if shows := state.Lflag&unix.ECHO != 0; shows == neg {
		ts.Fatalf("the terminal of %s shows what is typed: %t", args[0], shows)
	}
}

func ended(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended name code")
	}
	b := named(ts, args[0])
	select {
	case <-b.ended:
	case <-time.After(patience):
		ts.Fatalf("%s has not ended:\n%s%s", args[0], b.stderr.String(), b.stdout.String())
	}
	<-b.heard
	fmt.Fprint(ts.Stdout(), b.stdout.String())
	fmt.Fprint(ts.Stderr(), b.stderr.String())
	code := 0
	if exit := new(exec.ExitError); errors.As(b.err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(b.err)
	}
	if want, err := strconv.Atoi(args[1]); err != nil || code != want {
		ts.Fatalf("%s ended with code %d, want %s:\n%s%s", args[0], code, args[1], b.stderr.String(),
			b.stdout.String())
	}
}

func named(ts *testscript.TestScript, name string) *begun {
	b := ts.Value(begunKey{}).(map[string]*begun)[name]
	if b == nil {
		ts.Fatalf("%s was never begun", name)
	}
	return b
}

// printed is what a program has printed so far.
type printed struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.String()
}

package waves

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/process"
)

// Children are the castles that work on the clusters. Each leads a process group of its own, so that a
// terminal's Ctrl-C reaches it once, from this castle. On Linux the kernel interrupts it when this castle is
// killed: it ends as after a Ctrl-C.
type Children struct {
	Program string   // castle itself
	Name    string   // as it was called
	Flags   []string // that each command gets, before its own
	Environ []string
	// Variables are more of the environment, of one cluster.
	Variables func(cluster string) []string

	all sync.Map // *os.Process
}

// Signal forwards a further interrupt to all children; the context sends the first one. The third kills them.
func (c *Children) Signal(times int) {
	for p := range c.all.Range {
		switch p := p.(*os.Process); {
		case times > 3:
			_ = p.Kill() // it fails only if the process has ended
		case times > 1:
			_ = p.Signal(os.Interrupt)
		}
	}
}

// Exit is how a child has ended.
type Exit struct {
	Code   int
	Output []byte        // without report
	Errors string        // the last of its stderr
	Ending *event.Ending // of its run; nil if it has begun none
	Err    error         // it could not be started, or was killed
}

// Run runs a command of castle on a cluster, and waits until it has ended, also after ctx is done. With a
// report it prints events, else its output is returned.
func (c *Children) Run(ctx context.Context, report func(event.Event), command, cluster string,
	flags ...string) (x Exit) {
	// The kernel's signal comes when the thread ends that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.Program)
	cmd.Args = slices.Concat([]string{c.Name}, c.Flags, []string{command, cluster}, flags)
	cmd.Env, cmd.SysProcAttr = slices.Concat(c.Environ, c.Variables(cluster)), process.Child(syscall.SIGINT)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stderr := &tail{}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return Exit{Code: 1, Err: err}
	}
	c.all.Store(cmd.Process, nil)
	if report == nil {
		x.Output, err = io.ReadAll(stdout)
	} else {
		x.Ending, err = events(stdout, report)
	}
	ended := cmd.Wait()
	c.all.Delete(cmd.Process)
	x.Code, x.Errors = cmd.ProcessState.ExitCode(), string(stderr.text)
	if exit := (*exec.ExitError)(nil); !errors.As(ended, &exit) && ctx.Err() == nil {
		err = errors.Join(err, ended)
	}
	if x.Code < 0 { // a signal ended it
		x.Code, err = 1, fmt.Errorf("castle: %s", cmd.ProcessState)
	}
	x.Err = err
	return x
}

// events reads the events that a child prints, and returns how its last run has ended.
func events(r io.Reader, report func(event.Event)) (ending *event.Ending, err error) {
	for d := json.NewDecoder(r); ; {
		var e event.Event
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return ending, nil
		case err != nil: // the child must not wait for a reader
			_, _ = io.Copy(io.Discard, r)
			return ending, err
		}
		if e.Kind == event.RunEnded {
			ending = e.Ending
		}
		report(e)
	}
}

// Result sums up the exit of a command that changes a cluster.
func (x Exit) Result() event.Ending {
	e := event.Ending{Result: event.OutcomeFailed, ExitCode: max(x.Code, 1),
		Stages: map[event.Result]int{}, Causes: []event.Cause{}}
	if x.Code == 0 && x.Err == nil {
		e.Result, e.ExitCode = event.OutcomeSucceeded, 0
		return e
	}
	switch x.Code {
	case 2, 3, 4, 7: // usage, unconfirmed, a preflight, a lock
		e.Result = event.OutcomeRefused
	case 130:
		e.Result = event.OutcomeInterrupted
		return e
	}
	e.Causes = append(e.Causes, event.Cause{Text: x.Reason()})
	if x.Ending != nil && len(x.Ending.Causes) > 0 {
		e.Resume, e.Causes[0].Next = x.Ending.Resume, x.Ending.Causes[0].Next
	}
	return e
}

// Closed returns why a cluster is not ready, from castle status: its first closed gate or a stage.
func (x Exit) Closed() string {
	var status struct {
		Stages []struct {
			Name, State, Reason string
			Gates               []struct {
				Name, Reason string
				Open         bool
			}
		}
	}
	if json.Unmarshal(x.Output, &status) != nil {
		return cmp.Or(x.Reason(), "castle status fails")
	}
	other := ""
	for _, s := range status.Stages {
		for _, g := range s.Gates {
			if !g.Open {
				return foreign.OneLine(fmt.Sprintf("gate %s %s: %s", s.Name, g.Name, g.Reason))
			}
		}
		if s.State != "ready" && s.State != "up to date" {
			other = cmp.Or(other, fmt.Sprintf("stage %s is %s", s.Name, s.State))
		}
	}
	return cmp.Or(foreign.OneLine(other), x.Reason())
}

// Reason is why the command did not succeed: the first cause of its run, else the last error that it has
// printed. Notices come before. Of a configuration it is the first problem: castle counts them below.
func (x Exit) Reason() string {
	if x.Ending != nil && len(x.Ending.Causes) > 0 {
		return foreign.OneLine(x.Ending.Causes[0].Text)
	}
	text := ""
	for line := range strings.Lines(x.Errors) {
		if problem, is := strings.CutPrefix(line, "Error: "); is {
			return foreign.OneLine(problem)
		}
		if one, is := strings.CutPrefix(line, "castle: "); is && !strings.HasPrefix(one, "note: ") {
			text = one
		}
	}
	if text == "" && x.Err != nil {
		text = x.Err.Error()
	}
	return foreign.OneLine(strings.TrimSpace(cmp.Or(text, x.Errors)))
}

// mostErrors is how much of a child's stderr is kept.
const mostErrors = 16 << 10

// tail keeps the last bytes that were written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if more := len(t.text) - mostErrors; more > 0 {
		t.text = bytes.Clone(t.text[more:])
	}
	return len(p), nil
}

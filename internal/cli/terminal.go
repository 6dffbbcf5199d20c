package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/ui"
)

// interruptedError is the cause of a run's cancellation. It wraps context.Canceled, so
// that no caller treats the run as a success.
type interruptedError struct{ resume string } // the command; empty unless a prompt was interrupted

func (e interruptedError) Error() string {
	return "interrupted" + textIf(e.resume != "", "; resume with: "+e.resume)
}
func (interruptedError) Unwrap() error { return context.Canceled }

// commandLine returns the command that castle was started with, without values of --var: they may be secret.
func commandLine(args []string) string {
	line := "castle"
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "--var="):
			arg = "--var=…"
		case i > 0 && args[i-1] == "--var":
			arg = "…"
		case !plainWord.MatchString(arg):
			arg = process.Quote(arg)
		}
		line += " " + arg
	}
	return line
}

var plainWord = regexp.MustCompile(`^[\w%+,./:=@-]+$`)

// signalWindow is the time in which further signals count as the same interrupt:
// `timeout` and make signal both the child and its group. A second Ctrl-C comes later.
const signalWindow = 500 * time.Millisecond

// interruptCounter counts how often the user has interrupted castle.
type interruptCounter struct {
	times int
	last  time.Time // of the last counted signal
}

// count reports whether a signal is an interrupt of its own. A hangup counts only as
// the first one: shell and kernel send it several times.
func (i *interruptCounter) count(sig os.Signal, now time.Time) bool {
	if i.times > 0 && (sig == syscall.SIGHUP || now.Sub(i.last) < signalWindow) {
		return false
	}
	i.times, i.last = i.times+1, now
	return true
}

// interruptible returns a context that the first interrupt cancels, so that Terraform finishes cleanly. The
// second only warns of the losses of a third; the third kills.
func interruptible(parent context.Context, in *interrupts) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(signals, syscall.SIGHUP)
	}
	go dispatch(signals, func(times int) { in.handle(ctx, times, cancel) })
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel(errors.New("done"))
	}
}

// dispatch handles the interrupts one after the other. It counts a signal when it
// arrives, because handling the one before may take long on a slow disk.
func dispatch(signals <-chan os.Signal, handle func(times int)) {
	counted := make(chan int, 3)
	go func() {
		for times := range counted {
			handle(times)
		}
	}()
	var all interruptCounter
	for sig := range signals {
		if all.count(sig, time.Now()) {
			counted <- all.times
		}
	}
	close(counted)
}

// interrupts tracks castle's current work, and handles an interrupt accordingly.
type interrupts struct {
	stderr  io.Writer
	command string // that castle was started with

	mu        sync.Mutex
	cluster   *cluster.Cluster // whose run an interrupt stops
	lines     *ui.Lines        // shows the run, unless it is shown as JSON
	prompting bool             // castle waits for the user's input
	resume    string           // continues what an interrupt of the prompt ends; empty if nothing was entered
	show      func()           // makes the terminal show input again; nil unless hidden
	relay     func(times int)  // forwards every interrupt; the first one also cancels the context

	endProfile func() error // nil without --profile
}

// update changes the state that an interrupt reads.
func (i *interrupts) update(change func(i *interrupts)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(i)
}

// prompt records that castle waits for input, until the returned function is called.
func (i *interrupts) prompt() (done func()) {
	i.update(func(i *interrupts) { i.prompting = true })
	return func() { i.update(func(i *interrupts) { i.prompting = false }) }
}

// hideInput disables the terminal's echo until show is called or castle is interrupted.
// It discards input that was typed or pasted ahead, so that it reaches no shell.
func (i *interrupts) hideInput(terminal *os.File) (show func(), err error) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.show = func() { _ = unix.IoctlSetTermios(fd, setTermios, before) } // the terminal may be gone
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	return i.show, unix.IoctlSetTermios(fd, setTermios, &hidden)
}

func (i *interrupts) handle(ctx context.Context, times int, cancel context.CancelCauseFunc) {
	i.mu.Lock()
	c, prompting, show, relay, resume := i.cluster, i.prompting, i.show, i.relay, i.resume
	i.mu.Unlock()
	var run cluster.Interruptible
	if c != nil {
		run = c.Active()
	}
	switch {
	case prompting: // reading stdin cannot be cancelled, and nothing has started
		if show != nil {
			show()
		}
		fmt.Fprintf(i.stderr, "\ncastle: %v\n", interruptedError{resume})
		i.exit()
	case relay != nil:
		cancel(interruptedError{})
		relay(times)
	case run == nil:
		if times > 1 {
			i.exit()
		}
		cancel(interruptedError{})
	default:
		withinSecond(func() { run.Interrupt(times) })
		cancel(interruptedError{}) // the run's ending names the command
		if times > 2 {
			if err := run.Kill(context.WithoutCancel(ctx)); err != nil {
				fmt.Fprintln(i.stderr, "castle:", err)
			}
			i.exit()
		}
	}
}

// exit ends castle at once.
func (i *interrupts) exit() {
	i.closeView()
	i.profiled()
	os.Exit(exitInterrupted)
}

// profiled completes the profile, if there is one, and reports whether it could.
func (i *interrupts) profiled() bool {
	i.mu.Lock()
	end := i.endProfile
	i.mu.Unlock()
	if end == nil {
		return true
	}
	err := end()
	if err != nil {
		fmt.Fprintln(i.stderr, "castle: --profile:", err)
	}
	return err == nil
}

// say writes a line, also while the terminal shows a run.
func (i *interrupts) say(text string) {
	i.mu.Lock()
	lines := i.lines
	i.mu.Unlock()
	if lines != nil {
		lines.Say(text)
		return
	}
	fmt.Fprintln(i.stderr, text)
}

// closeView removes the view of a run, if there is one.
func (i *interrupts) closeView() {
	i.mu.Lock()
	lines := i.lines
	i.mu.Unlock()
	if lines != nil {
		withinSecond(lines.Close)
	}
}

// display returns how progress is shown on stderr: in a view, if the terminal can move its cursor.
func display(a *app) ui.Options {
	getenv := func(name string) string { return process.Getenv(a.environ, name) }
	term := getenv("TERM")
	able := isTerminal(a.stderr) && term != "" && term != "dumb"
	locale := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return ui.Options{
		Verbose: a.verbose, Timestamps: a.timestamps, View: able, Colour: able && coloured(a, a.stderr),
		// The font of Linux' console lacks the signs, whatever its locale.
		ASCII: term == "linux" || !strings.Contains(strings.ReplaceAll(locale, "-", ""), "utf8"),
	}
}

// coloured reports whether text for w may have colours (https://no-color.org).
func coloured(a *app, w any) bool {
	return isTerminal(w) && !a.noColour && process.Getenv(a.environ, "NO_COLOR") == "" &&
		process.Getenv(a.environ, "TERM") != "dumb"
}

// mostRuns is how many earlier runs tell how long a stage usually takes.
const mostRuns = 10

// usual returns how long the stages of a cluster usually take.
func usual(dir *state.Dir) history.Usual {
	return history.Learn(history.Earlier(dir, "", mostRuns, "create", "destroy", "recreate")...)
}

// ask prints a question of a run. The caller calls answered once the user has typed.
func (i *interrupts) ask(text string) (answered func()) {
	i.mu.Lock()
	lines := i.lines
	i.mu.Unlock()
	if lines == nil {
		i.say(text)
		return func() {}
	}
	return lines.Ask(text)
}

// withinSecond waits at most a second for report: a blocked stderr must not delay the signal to Terraform.
func withinSecond(report func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		report()
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// surviveClosedPipe ignores SIGPIPE: `castle create blue | tee log` loses tee to the same Ctrl-C, and castle
// must not die before Terraform ends. A registered channel suffices; nothing reads it.
func surviveClosedPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// confirmCluster asks the user to type the cluster's name before an action that is hard to undo. otherwise
// describes the action that castle did not take.
func confirmCluster(a *app, c *cluster.Cluster, action, otherwise string) error {
	return confirm(a, "the cluster's name", c.Config.Name, action, otherwise)
}

// confirm asks the user to type want, which word describes.
func confirm(a *app, word, want, action, otherwise string) error {
	if a.yes {
		return nil
	}
	if !isTerminal(a.stdin) {
		return &unconfirmedError{"not confirmed, " + otherwise + "; without a terminal, pass --yes"}
	}
	typed, err := a.prompt(fmt.Sprintf("Type %s to %s (%s): ", word, action, want))
	if typed != want {
		return &unconfirmedError{"not confirmed, " + otherwise}
	}
	return err
}

// errNoAnswer reports that the terminal has no further input: the user has typed Ctrl-D.
var errNoAnswer = errors.New("no answer")

// prompt asks the user for one line.
func (a *app) prompt(question string) (string, error) {
	defer a.interrupts.prompt()()
	fmt.Fprint(a.stderr, question)
	typed, err := bufio.NewReader(a.stdin).ReadString('\n')
	if errors.Is(err, io.EOF) {
		fmt.Fprintln(a.stderr)
		err = errNoAnswer
	}
	return strings.TrimSpace(typed), err
}

// answersOf returns how a run asks the user for a line. One reader serves all: it may have read ahead.
func answersOf(a *app) func(ctx context.Context, question string) (string, error) {
	answers := make(chan string)
	read := sync.OnceFunc(func() {
		go func() {
			defer close(answers)
			for lines := bufio.NewScanner(a.stdin); lines.Scan(); {
				answers <- strings.TrimSpace(lines.Text())
			}
		}()
	})
	return func(ctx context.Context, question string) (string, error) {
		defer a.interrupts.ask(question)()
		read()
		select {
		case answer := <-answers:
			return answer, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// confirmLoss returns how a run asks whether a stage may replace or destroy resources.
// Without a terminal the answer is no.
func confirmLoss(a *app) func(context.Context, review.Loss) (bool, error) {
	if !isTerminal(a.stdin) {
		return func(context.Context, review.Loss) (bool, error) { return false, nil }
	}
	answers := answersOf(a)
	return func(ctx context.Context, loss review.Loss) (bool, error) {
		var text strings.Builder
		fmt.Fprintf(&text, "%s/%s: the plan replaces or destroys existing resources:\n", loss.Layer,
			loss.Stage)
		for _, line := range review.Lines(loss.Changes) {
			text.WriteString("  " + line + "\n")
		}
		answer, err := answers(ctx, text.String()+"Type yes to replace and destroy them: ")
		if err == nil && answer != "yes" {
			err = &review.UnagreedError{Loss: loss, Asked: true}
		}
		return err == nil, err
	}
}

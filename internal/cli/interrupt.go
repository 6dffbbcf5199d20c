package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ephemeral-castle/castle/internal/castle"
)

// interruptedError is why a run ends that its user has stopped. It is a
// context.Canceled, so that nobody takes it for a success.
type interruptedError struct{ begun bool }

func (e interruptedError) Error() string {
	if !e.begun {
		return "interrupted"
	}
	return "interrupted; the same command completes what was begun"
}
func (interruptedError) Unwrap() error { return context.Canceled }

// gesture is how long signals belong to the one before. Who sends one often sends
// two: `timeout` signals its child and then its group, a make that is stopped
// passes on what the group has had already. A second Ctrl-C comes later.
const gesture = 500 * time.Millisecond

// interrupts counts how often a user has interrupted castle.
type interrupts struct {
	times int
	last  time.Time // when the last one was counted
}

// count takes a signal and reports whether it is an interrupt of its own. A
// terminal that is closed, or a connection that breaks, is a first one and no
// more: the shell and the kernel tell of it several times.
func (i *interrupts) count(sig os.Signal, now time.Time) bool {
	if i.times > 0 && (sig == syscall.SIGHUP || now.Sub(i.last) < gesture) {
		return false
	}
	i.times, i.last = i.times+1, now
	return true
}

// interruptible returns a context that the first interrupt or termination
// signal ends, in order: Terraform finishes what it has begun and writes its
// state. A second one only says what a third would lose; the third kills.
func (a *app) interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup does
		signal.Notify(signals, syscall.SIGHUP)
	}
	go hear(signals, func(times int) { a.interrupted(ctx, times, cancel) })
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel(errors.New("done"))
	}
}

// hear has every interrupt answered, one after the other. A signal's time is when it
// comes: what is said of the one before may wait for a slow disk.
func hear(signals <-chan os.Signal, answer func(times int)) {
	counted := make(chan int, 3)
	go func() {
		for times := range counted {
			answer(times)
		}
	}()
	var all interrupts
	for sig := range signals {
		if all.count(sig, time.Now()) {
			counted <- all.times
		}
	}
	close(counted)
}

// interrupted answers one interrupt.
func (a *app) interrupted(ctx context.Context, times int, cancel context.CancelCauseFunc) {
	a.mu.Lock()
	c, prompts, show, relay := a.working, a.prompts, a.show, a.relay
	a.mu.Unlock()
	var run castle.Interruptible
	if c != nil {
		run = c.Active()
	}
	switch {
	case prompts: // nobody would come to read the answer, and nothing has begun
		if show != nil {
			show()
		}
		fmt.Fprintln(a.stderr, "\ncastle: interrupted")
		os.Exit(castle.ExitInterrupted)
	case relay != nil:
		cancel(interruptedError{})
		relay(times)
	case run == nil:
		if times > 1 {
			os.Exit(castle.ExitInterrupted)
		}
		cancel(interruptedError{})
	default:
		promptly(func() { run.Interrupt(times) })
		cancel(interruptedError{begun: true})
		if times > 2 {
			a.kill(context.WithoutCancel(ctx))
			os.Exit(castle.ExitInterrupted)
		}
	}
}

// promptly waits a moment for something to be said and no longer: that nobody
// reads what castle says must not keep a signal from Terraform.
func promptly(say func()) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		say()
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
}

// surviveClosedPipe keeps castle alive when nobody reads any more what it says:
// `castle create blue | tee log` loses its tee to the same Ctrl-C, and a castle
// that died of its next line would take Terraform with it in the middle of a
// change. Nothing is ever read from the channel; that it is there is enough.
func surviveClosedPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// say tells the user something while a run may be shown.
func (a *app) say(text string) {
	a.mu.Lock()
	lines := a.lines
	a.mu.Unlock()
	if lines != nil {
		lines.Say(text)
		return
	}
	fmt.Fprintln(a.stderr, text)
}

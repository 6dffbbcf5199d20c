package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

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

// interruptible returns a context that the first interrupt or termination
// signal ends, in order: Terraform finishes what it has begun and writes its
// state. A second signal only says what a third would lose; the third kills.
// A terminal that is closed, or a connection that breaks, is a first signal and
// no more: the shell and the kernel tell of it several times.
func (a *app) interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup does
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		for n := 1; ; n++ {
			sig, open := <-signals
			if !open {
				return
			}
			if sig == syscall.SIGHUP && n > 1 {
				n--
				continue
			}
			asks := a.onlyAsks()
			switch {
			case asks && n == 1:
				cancel(interruptedError{})
			case asks:
				os.Exit(castle.ExitInterrupted)
			case n == 1:
				a.say("castle: interrupted; Terraform finishes what it has begun and saves its state")
				cancel(interruptedError{begun: true})
			case n == 2:
				a.say("castle: still waiting for Terraform; a third interrupt kills it, and what it is " +
					"creating now would be missing in its state (the next create looks for it)")
			default:
				a.say("castle: killed")
				a.kill(context.WithoutCancel(ctx))
				os.Exit(castle.ExitInterrupted)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel(errors.New("done"))
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

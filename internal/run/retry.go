package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/network"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// A run retries Terraform after a transient error, such as a webhook that does not serve yet, a Proxmox lock
// or a restarting API server. Any other error ends the stage. A retry does everything that repeating the
// command would do. It reads and snapshots the state, runs the preflights, imports the stage's own objects
// and plans anew. So it replaces a tainted machine only if its id still passes the preflights. Helm releases
// use upgrade_install and do not wait, so a retry finds them.
const (
	retries      = 5               // beside the first attempt
	firstPause   = 2 * time.Second // before a retry; the pause doubles, and varies: stages may fail together
	longestPause = 30 * time.Second
	retryTime    = 5 * time.Minute // from the first failure until a retry may begin at the latest
)

// retry describes the next attempt for the user.
type retry struct {
	number int
	pause  time.Duration
	why    error
}

func (r retry) String() string {
	return fmt.Sprintf("%d of %d in %s: %v", r.number, retries, r.pause.Round(time.Second), r.why)
}

// Retry attempts a stage's changes until they succeed, fail permanently, or the retries are used up. again
// is false for the first attempt.
func (r *Run) Retry(ctx context.Context, stage, layer string, try func(again bool) error) error {
	return retrying(ctx, try, func(next retry) {
		e := event.Event{Kind: event.Retry, Layer: layer, Stage: stage, Text: next.String(),
			Seconds: next.pause.Seconds()}
		if step := (*StepError)(nil); errors.As(next.why, &step) {
			e.Step = step.Step
		}
		r.Emit(e)
	})
}

func retrying(ctx context.Context, try func(again bool) error, announce func(retry)) error {
	began := time.Now()
	pauses := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.2, Steps: retries, Cap: longestPause}
	var failed time.Time
	for number := 1; ; number++ {
		err := try(number > 1)
		if err == nil || ctx.Err() != nil || !terraform.Transient(err) {
			return err
		}
		if number == 1 {
			failed = time.Now()
		}
		next := retry{number: number, pause: pauses.Step(), why: err}
		if number > retries || time.Since(failed)+next.pause > retryTime {
			return fmt.Errorf("%w; tried %d times in %s", err, number, time.Since(began).Round(time.Second))
		}
		announce(next)
		if err := sleep(ctx, next); err != nil {
			return err
		}
	}
}

// sleep waits for the next attempt. A timeout's error names the cause of the retry.
func sleep(ctx context.Context, next retry) error {
	if gate.Sleep(ctx, next.pause) {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		return cause
	}
	return fmt.Errorf("%w, before retry %d of %d: %w", cause, next.number, retries, next.why)
}

// NoAnswer returns the error of a preflight that could not read its system. Nothing changes without an
// answer, but the next attempt may get one.
func NoAnswer(preflight string, err error) error {
	return fmt.Errorf("preflight %s: %w", preflight, &noAnswerError{err})
}

// noAnswerError is the error of a system that did not answer.
type noAnswerError struct{ error }

func (e *noAnswerError) Unwrap() error { return e.error }

// Transient reports whether another try may succeed: the error reports that itself, or a connection failed.
func (e *noAnswerError) Transient() bool {
	var known interface{ Transient() bool }
	if errors.As(e.error, &known) {
		return known.Transient()
	}
	return network.Interrupted(e.error)
}

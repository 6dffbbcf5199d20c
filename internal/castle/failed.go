package castle

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ephemeral-castle/castle/internal/event"
)

// failed tells how a stage failed and names its error and, where Terraform has
// said something, the log that has all of it. A stage that was stopped with its
// run has not failed: the run's own error says it all.
func (r *run) failed(ctx context.Context, layer, stage string, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		r.emit(event.Event{Kind: event.StageStopped, Layer: layer, Stage: stage})
		return context.Cause(ctx)
	}
	r.emit(event.Event{Kind: event.StageFailed, Layer: layer, Stage: stage, Text: err.Error()})
	path := r.files.LogPath(stage)
	if info, statErr := os.Stat(path); statErr != nil || info.Size() == 0 {
		return fmt.Errorf("stage %s: %w", stage, err)
	}
	return fmt.Errorf("stage %s: %w\n  log: %s", stage, err, path)
}

// during says which step an error comes from; nil stays nil.
func during(step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{step, err}
}

// stepError is what Terraform said in one of a stage's steps.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

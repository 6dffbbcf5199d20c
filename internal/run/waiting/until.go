package waiting

import (
	"context"
	"fmt"
	"time"
)

// Until repeats a check until it succeeds, and says each new reason why not. The pauses grow: most of what
// castle waits for takes a moment.
func Until(ctx context.Context, say func(string), check func(context.Context) error) error {
	last := ""
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			say("waits: " + last)
		}
		select {
		case <-ctx.Done():
			if last != "" {
				return fmt.Errorf("%s (%w)", last, context.Cause(ctx))
			}
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

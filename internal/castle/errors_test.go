package castle

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestExitCodeNamesTheGravestCause(t *testing.T) {
	closed := fmt.Errorf("stage metallb: %w", &GateError{Gate: "webhook.objects", Err: &gate.TimeoutError{}})
	broken := errors.New("stage longhorn: apply: quota exceeded")
	ghost := fmt.Errorf("stage platform: %w", &PreflightError{Preflight: "vm_ids.free"})
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"a failed stage", broken, 1},
		{"a usage error", &UsageError{Message: "no"}, 2},
		{"a preflight", ghost, 4},
		{"a gate", closed, 5},
		{"two gates", errors.Join(closed, closed), 5},
		{"a gate and a failed stage", errors.Join(closed, broken), 1},
		{"a gate and a preflight", errors.Join(closed, ghost), 4},
		{"something left over", &LeftoverError{Left: []string{"VM 421"}}, 6},
		{"another run", &state.HeldError{}, 7},
		{"an interrupt, whatever else failed for it", errors.Join(broken, fmt.Errorf("interrupted: %w", context.Canceled)), 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ExitCode(c.err); got != c.want {
				t.Errorf("exit code of %v is %d, want %d", c.err, got, c.want)
			}
		})
	}
}

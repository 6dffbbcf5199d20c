// Package drain takes the Pods off a node before its machine restarts, and lets it take Pods again.
package drain

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Cordon marks a node as unschedulable and as cordoned by a run of castle. A node that somebody else has
// cordoned stays his: then it only reports so.
func Cordon(ctx context.Context, target gate.Target, node, run string) (foreign bool, err error) {
	return false, nil
}

// Uncordon lifts castle's own cordon, and no other one.
func Uncordon(ctx context.Context, target gate.Target, node string) error { return nil }

// Cordoned lists the nodes that castle has cordoned, by name: what a killed rollout has left.
func Cordoned(ctx context.Context, target gate.Target) ([]string, error) { return nil, nil }

// Obstacles explains what would keep a drain of a node from ever ending, and how to remove it. It changes
// nothing.
func Obstacles(ctx context.Context, target gate.Target, node string, force bool) ([]string, error) {
	return nil, nil
}

// Drain evicts the Pods of a cordoned node, within their budgets. say gets each new reason to wait, once.
func Drain(ctx context.Context, target gate.Target, node string, force bool, say func(string)) error {
	return nil
}

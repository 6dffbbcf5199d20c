// Package gate holds castle's promise: nothing starts before what it needs is
// really ready. It knows how to ask and how to wait; what is asked lives with
// the client that can answer it (kube, talos, proxmox).
//
// A Gate's Check is one attempt. Wait repeats it, so `create` waits for exactly
// what `status` asks once. Gates fail closed: whatever is not proved open is
// closed, "does not exist yet" is an ordinary reason to wait, and only an error
// marked Permanent ends a wait early.
package gate

import (
	"context"
	"errors"
)

// Gate is one check, bound to one cluster and to known arguments.
type Gate struct {
	// Name is the gate's type and label, as in the stage's file: "endpoint_slice.webhook".
	Name string
	// Check makes one attempt and returns nil when the gate is open, otherwise
	// what is still missing, in words for a person. It must honour ctx.
	Check func(ctx context.Context) error
	// Changed, when set, tells Wait that what Check looks at may have changed, so
	// that it need not sleep out its pause. A change that comes while Wait does not
	// listen must not be lost, so the channel holds one; and whenever a watch
	// begins, something may have changed before. The channel is closed or abandoned
	// when ctx ends. A gate without it is polled.
	Changed func(ctx context.Context) <-chan struct{}
	// Nudge, when set, helps along what stands still although nothing is in its
	// way, and says what it did; empty if there was nothing to do. Only Wait calls
	// it, after a closed answer and not oftener than every few seconds: Check itself
	// never changes anything.
	Nudge func(ctx context.Context) (did string, err error)
	// Diagnose, when set, collects what may explain a closed gate.
	Diagnose func(ctx context.Context) Diagnosis
}

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error that no waiting can heal, such as a kind of object
// that the gate's type cannot judge. Wait returns it at once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent reports whether err, or an error that it wraps, was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

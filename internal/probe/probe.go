// Package probe asks what belongs to no client of castle's: does a port take
// connections, does a URL answer.
//
// It sees what stands at an address and nothing of what stands behind, so its
// gates trust little. Each attempt makes a connection of its own and has a bound
// of its own. A proxy of the environment is never asked: it would answer for an
// address that is not there. A redirect is an answer and is not followed, since
// what it leads to may be ready when the thing itself is not.
//
// Nearly everything that goes wrong here may heal: a name that does not resolve,
// a foreign certificate (an ingress controller serves one of its own until the
// right one has been issued), any status. Only where the gate's URL has the wrong
// scheme is waiting in vain.
package probe

import (
	"context"
	"errors"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// attempt bounds one look: what takes longer is not ready for its users either.
const attempt = 5 * time.Second

// GateTypes lists the gates that need nothing but an address.
func GateTypes() []gate.Type { return []gate.Type{tcp(), web()} }

// bound gives a check its own deadline, and leaves the caller's end to the caller.
func bound(check func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		limited, stop := context.WithTimeout(ctx, attempt)
		defer stop()
		err := check(limited)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
}

// diagnosed looks once more and says what may be behind what it sees.
func diagnosed(check func(context.Context) error, look string) func(context.Context) gate.Diagnosis {
	return func(ctx context.Context) gate.Diagnosis {
		d := gate.Diagnosis{Look: look}
		err := check(ctx)
		seen := &fault{}
		switch {
		case err == nil:
			d.Cause = "it was late: by now it answers as it should"
		case errors.As(err, &seen):
			d.Cause = seen.cause
		}
		return d
	}
}

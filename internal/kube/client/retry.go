package client

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/network"
)

// outage is how long Retry waits for an API that does not answer: the virtual address moves when a control
// plane restarts, and a webhook moves with its Pod.
const outage = time.Minute

// Retry makes attempts of a function on a target's API until one gets an answer. The function finds the
// result of an attempt whose answer was lost.
func Retry(ctx context.Context, target gate.Target, do func(context.Context, *API) error) error {
	return New(target, "").Retry(ctx, do)
}

// Retry is the function Retry on this cluster. It repeats after a finding of kind gate.Waits, too.
func (c *Cluster) Retry(ctx context.Context, do func(context.Context, *API) error) error {
	bounded, stop := context.WithTimeout(ctx, outage)
	defer stop()
	var last error
	pauses := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 6, Cap: 2 * time.Second}
	ended := pauses.DelayFunc().Until(bounded, true, true, func(ctx context.Context) (bool, error) {
		var cause error
		err := c.Check(func(ctx context.Context, a *API) error { cause = do(ctx, a); return cause })(ctx)
		if last == nil || err == nil || bounded.Err() == nil { // else the attempt was only cut off
			last = err
		}
		return err == nil || gate.IsPermanent(err) || !passes(cause), nil
	})
	if ctx.Err() != nil && (ended != nil || last != nil) {
		return context.Cause(ctx)
	}
	return last
}

// passes reports whether another attempt may succeed: nobody has answered, the API server is not ready or
// busy, somebody else has changed the object, or a webhook is not ready.
func passes(err error) bool {
	for _, is := range []func(error) bool{network.Interrupted, utilnet.IsHTTP2ConnectionLost,
		apierrors.IsServiceUnavailable, apierrors.IsTooManyRequests, apierrors.IsServerTimeout,
		apierrors.IsTimeout, apierrors.IsInternalError, apierrors.IsConflict} {
		if is(err) {
			return true
		}
	}
	return apierrors.IsForbidden(err) && !LacksPermission(err) || gate.KindOf(err) == gate.Waits
}

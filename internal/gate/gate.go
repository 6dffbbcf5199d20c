// Package gate holds castle's promise: nothing starts before everything it needs is ready. It defines what a
// gate is and how to wait for one; the checks themselves live with the client that can answer them (kube,
// talos, proxmox).
//
// A Gate's Check is one attempt. Wait repeats it, so `create` waits for exactly what `status` checks once.
// Gates fail closed: a gate that is not proved open is closed. "does not exist yet" is an ordinary reason to
// wait; only an error marked Permanent ends a wait early. Code that decides on an answer compares its Kind,
// never its text.
package gate

import "context"

// Gate is one check, bound to one cluster and to known arguments.
type Gate struct {
	// Name is the gate's type and label, as in the stage's file: "endpoint_slice.webhook".
	Name string
	// Check makes one attempt and returns nil when the gate is open, otherwise an error that names the
	// missing part for a person. It must honour ctx.
	Check func(ctx context.Context) error
	// Changed, when set, signals that the objects that Check has read may have changed, and whenever a watch
	// begins. It is called after a Check. The channel holds one signal, because a change while Wait does not
	// listen must not be lost. A gate without Changed is polled.
	Changed func(ctx context.Context) <-chan struct{}
	// TriggerReconcile, when set, asks controllers to reconcile objects that are idle although nothing
	// blocks them, and describes its action; empty if none. Only Wait calls it, at most every few seconds:
	// Check itself never changes anything.
	TriggerReconcile func(ctx context.Context) (did string, err error)
	// Diagnose, when set, collects evidence that may explain a closed gate.
	Diagnose func(ctx context.Context) Diagnosis
}

// Package rpc runs the calls of a node and the tasks that they start (PVE::RPCEnvironment). A task outlives
// its call; everything runs under one mutex.
package rpc

import (
	"net/url"
	"strconv"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
)

// Request is one call as it arrived, with the answer that it got.
type Request struct {
	Method string
	Path   string     // decoded, below /api2/json, without the leading slash
	Params url.Values // of the path, the query and the body
	Status int
	Error  string // the error's text; empty when the call was accepted
	At     time.Time
}

// Handler answers a call, under the datacenter's mutex.
type Handler func(*Call) (any, error)

// Call is a request on its way through a handler.
type Call struct {
	Request Request
	Caller  access.Caller
	Fault   Fault
	After   func() // if set, runs without the mutex before the answer

	workers *Workers
}

// Fault changes how a call's task ends.
type Fault struct {
	Hold <-chan struct{} // keeps it from ending until it is closed
	Exit string          // when set, ends it with this status and without effect
}

// Call returns a call whose tasks these workers run.
func (w *Workers) Call(caller access.Caller, r Request) *Call {
	return &Call{Request: r, Caller: caller, workers: w}
}

// As returns the same call by another caller, and without a fault.
func (c *Call) As(caller access.Caller) *Call { return c.workers.Call(caller, c.Request) }

// Get returns a parameter; "" without one.
func (c *Call) Get(name string) string { return c.Request.Params.Get(name) }

// Flag reads a boolean parameter as lenient as the real schema does.
func (c *Call) Flag(name string) bool {
	on, ok := option.ParseBool(c.Get(name))
	return ok && on
}

// VMID is the guest's id in the call; 0 without one.
func (c *Call) VMID() int {
	id, _ := strconv.Atoi(c.Get("vmid")) //nolint:errcheck // 0 is no guest's id
	return id
}

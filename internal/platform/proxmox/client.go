// Package proxmox reads and changes a Proxmox VE datacenter where castle must not rely on Terraform alone:
// before a stage builds (the preflight vm_ids), after a destroy (Search), in a nuke (Removal), and to restart
// a machine. A Removal has its own guarded sequence of requests. Package session sends them. Two facts shape
// the rest. Proxmox filters the list of guests by permission, so a guest that is not listed may exist: only
// cluster/nextid knows whether an id is taken. When the Terraform provider creates a machine whose id exists,
// it repeats the request and treats the same answer as success. From then on a foreign machine is in the
// state; the preflight is the only guard against that.
package proxmox

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// Client reads one datacenter; a Removal and Search.Restart change it. It is safe for concurrent use.
type Client struct {
	session *session.Session
	// User is the token's name without its secret: user@realm!name.
	User string
}

// NewClient makes a client. It does not contact the datacenter.
func NewClient(o platform.Account) (*Client, error) { return clientOn(session.Open(o)) }

func clientOn(s *session.Session, err error) (*Client, error) {
	if err != nil {
		return nil, err
	}
	return &Client{s, s.User}, nil
}

func get[T any](ctx context.Context, c *Client, path string, lacks func(T) string) (T, error) {
	return session.Get(ctx, c.session, path, lacks)
}

func list[R session.Row](ctx context.Context, c *Client, path string) ([]R, error) {
	return session.List[R](ctx, c.session, path)
}

// What package values reads.
type (
	Error  = values.Error
	Kind   = values.Kind
	Config = values.Config
)

// The kinds of errors.
const (
	Other        = values.Other
	Refused      = values.Refused
	Unauthorized = values.Unauthorized
	Forbidden    = values.Forbidden
	Missing      = values.Missing
	Taken        = values.Taken
	Unreachable  = values.Unreachable
)

// KindOf returns the kind of an error.
func KindOf(err error) Kind { return values.KindOf(err) }

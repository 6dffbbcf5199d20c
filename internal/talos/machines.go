package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// attempt bounds one look at all machines. A machine whose etcd does not run
// lets a call hang until its deadline.
const attempt = 5 * time.Second

// machines are the control planes that a gate asks, each of them itself.
type machines struct {
	config    *clientconfig.Config
	endpoints []string // sorted, each once
	timeout   time.Duration
}

func endpointsAttribute() gate.Attribute {
	return gate.Attribute{Type: cty.List(cty.String),
		Help: "The control planes' own addresses; the talosconfig's endpoints unless given."}
}

func newMachines(talosconfig []byte, values gate.Values) (*machines, error) {
	m := &machines{timeout: attempt}
	if len(talosconfig) == 0 {
		return nil, errors.New("there is no talosconfig")
	}
	var err error
	if m.config, err = clientconfig.FromBytes(talosconfig); err != nil {
		// The file holds a key, and a decoder's error may quote the file.
		return nil, errors.New("the talosconfig is no valid YAML")
	}
	current := m.config.Contexts[m.config.Context]
	if current == nil {
		return nil, fmt.Errorf("the talosconfig has no context %q", m.config.Context)
	}
	if err := values.Decode("endpoints", &m.endpoints); err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	if len(m.endpoints) == 0 {
		m.endpoints = current.Endpoints
	}
	if len(m.endpoints) == 0 {
		m.endpoints = current.Nodes
	}
	m.endpoints = slices.Clone(m.endpoints)
	slices.Sort(m.endpoints)
	m.endpoints = slices.Compact(m.endpoints)
	return m, nil
}

// askAll puts the same question to all machines at the same time, bounded, and
// returns the answers in the endpoints' order. It fails only if ctx ends, and
// then some answers tell of that.
func askAll[A any](ctx context.Context, m *machines, ask func(ctx context.Context, endpoint string) A) ([]A, error) {
	attempt, stop := context.WithTimeout(ctx, m.timeout)
	defer stop()
	answers := make([]A, len(m.endpoints))
	var all sync.WaitGroup
	for i, endpoint := range m.endpoints {
		all.Go(func() { answers[i] = ask(attempt, endpoint) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return answers, context.Cause(ctx)
	}
	return answers, nil
}

// connect makes a connection for one attempt: one that was kept would remember
// its failures and pause before the next.
func (m *machines) connect(ctx context.Context, endpoint string) (*client.Client, *problem) {
	c, err := client.New(ctx, client.WithConfig(m.config), client.WithEndpoints(endpoint), client.WithDefaultGRPCDialOptions())
	if err != nil {
		return nil, &problem{endpoint: endpoint, what: err.Error(), permanent: true}
	}
	return c, nil
}

// Package commitstest has a store in memory for tests, which fails as a test asks.
package commitstest

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/store"
)

// Memory is a store in memory. Other stores can share its values.
type Memory struct {
	url string

	hooks  sync.Mutex
	before func(ctx context.Context, op, key string) error
	after  func(op, key string) error

	mu       *sync.Mutex
	values   map[string][]byte
	requests []string // op and key
}

// New returns an empty store.
func New(url string) *Memory {
	return &Memory{url: url, mu: new(sync.Mutex), values: map[string][]byte{}}
}

// Share returns a store with the same values, as another machine has it.
func (m *Memory) Share() *Memory { return &Memory{url: m.url, mu: m.mu, values: m.values} }

// Away returns an error as from a store that does not answer.
func (m *Memory) Away(op, key string) error {
	return &store.Error{URL: m.url, Op: op, Key: key, Kind: store.Away,
		Err: fmt.Errorf("dial tcp: connection refused")}
}

// Requests returns the requests since the last call, such as "read blue/proxmox/log/000000000001".
func (m *Memory) Requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.requests
	m.requests = nil
	return all
}

// SetBefore sets what is called before each request; its error is the answer. It may be nil.
func (m *Memory) SetBefore(before func(ctx context.Context, op, key string) error) {
	m.hooks.Lock()
	defer m.hooks.Unlock()
	m.before = before
}

// SetAfter sets what is called after each request that has succeeded; its error is the answer. It may be nil.
func (m *Memory) SetAfter(after func(op, key string) error) {
	m.hooks.Lock()
	defer m.hooks.Unlock()
	m.after = after
}

func (m *Memory) do(ctx context.Context, op, key string, do func() error) error {
	m.hooks.Lock()
	before, after := m.before, m.after
	m.hooks.Unlock()
	err := ctx.Err()
	if err == nil && before != nil {
		err = before(ctx, op, key)
	}
	if err == nil {
		m.mu.Lock()
		m.requests = append(m.requests, op+" "+key)
		err = do()
		m.mu.Unlock()
	}
	if err == nil && after != nil {
		err = after(op, key)
	}
	return err
}

// Read returns the value of a key.
func (m *Memory) Read(ctx context.Context, key string) (value []byte, err error) {
	err = m.do(ctx, "read", key, func() error {
		there, ok := m.values[key]
		if value = slices.Clone(there); !ok {
			return &store.Error{URL: m.url, Op: "read", Key: key, Kind: store.Failed, Err: fs.ErrNotExist}
		}
		return nil
	})
	return value, err
}

// Create creates a key.
func (m *Memory) Create(ctx context.Context, key string, value []byte) error {
	return m.do(ctx, "create", key, func() error {
		if _, ok := m.values[key]; ok {
			return &store.Error{URL: m.url, Op: "create", Key: key, Kind: store.Failed, Err: fs.ErrExist}
		}
		m.values[key] = slices.Clone(value)
		return nil
	})
}

// List returns the keys that begin with prefix.
func (m *Memory) List(ctx context.Context, prefix string) (keys []string, err error) {
	err = m.do(ctx, "list", prefix, func() error {
		for key := range m.values {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		return nil
	})
	slices.Sort(keys)
	return keys, err
}

// Sizes returns the keys that begin with prefix, with the bytes of their values.
func (m *Memory) Sizes(ctx context.Context, prefix string) (map[string]int64, error) {
	sizes := map[string]int64{}
	return sizes, m.do(ctx, "list", prefix, func() error {
		for key, value := range m.values {
			if strings.HasPrefix(key, prefix) {
				sizes[key] = int64(len(value))
			}
		}
		return nil
	})
}

// Delete deletes a key.
func (m *Memory) Delete(ctx context.Context, key string) error {
	return m.do(ctx, "delete", key, func() error {
		delete(m.values, key)
		return nil
	})
}

// Replace changes a value as no store does.
func (m *Memory) Replace(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = value
}

// URL returns the URL.
func (m *Memory) URL() string { return m.url }

// Close does nothing.
func (m *Memory) Close() error { return nil }

// Package store keeps values by key in a place that several machines reach: a bucket, a folder or a
// PostgreSQL database. A store can do four things, which all of them have: read, create if absent, list and
// delete. A value never changes. An operation has 20 seconds. Within them it is repeated after errors that
// pass: a refused or broken connection, a server that says to try again later. What the credentials do not
// allow, and a bucket that does not exist, are reported at once.
package store

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/store/location"
)

// Store keeps values by key. Keys are slash-separated paths of letters, digits, dots, dashes and underscores;
// no part begins with a dot. All methods are safe for concurrent use. If ctx is cancelled, the error is its
// cause. Errors other than that and those named are *Error.
type Store interface {
	// Read returns the value of a key. The error matches fs.ErrNotExist if there is none.
	Read(ctx context.Context, key string) ([]byte, error)
	// Create creates a key. The error matches fs.ErrExist if there is one, also if the answer to an earlier
	// attempt of the same call was lost: the caller compares. Readers see the whole value or none.
	Create(ctx context.Context, key string, value []byte) error
	// List returns the keys that begin with prefix, sorted.
	List(ctx context.Context, prefix string) ([]string, error)
	// Sizes returns the keys that begin with prefix, with the bytes of their values.
	Sizes(ctx context.Context, prefix string) (map[string]int64, error)
	// Delete deletes a key. A key that does not exist is no error.
	Delete(ctx context.Context, key string) error
	// URL returns the URL of the store, without anything secret.
	URL() string
	// Close ends the connections.
	Close() error
}

// Kind is why a store did not do what it was asked.
type Kind string

// The kinds of errors.
const (
	Away    Kind = "away"    // no answer, or one that says to try again later
	Refused Kind = "refused" // credentials are missing, expired or not sufficient
	Full    Kind = "full"    // no room
	Missing Kind = "missing" // there is no such bucket, folder or database
	Failed  Kind = "failed"  // anything else
)

// Error reports that a store did not do what it was asked.
type Error struct {
	URL  string // of the store
	Op   string // read, create, list or delete
	Key  string
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s %s: %v", e.URL, e.Op, e.Key, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Open returns the store at a URL: s3://, file:// or postgres://. Credentials come from each system's usual
// environment only; a URL that holds some is an error. Open makes no request.
func Open(ctx context.Context, raw string) (Store, error) {
	u, err := location.Parse(raw)
	if err != nil {
		return nil, err
	}
	open := map[string]func(context.Context, *url.URL) (backend, error){"s3": openS3, "file": openFolder,
		"postgres": openPostgres, "postgresql": openPostgres}[u.Scheme]
	b, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("%s://%s%s: %w", u.Scheme, u.Host, u.EscapedPath(), err)
	}
	return &retried{url: raw, backend: b, limit: limit}, nil
}

// onlyParameters refuses query parameters that are not known, and repeated ones.
func onlyParameters(u *url.URL, known ...string) error {
	query := u.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return fmt.Errorf("unknown parameter %s; %s:// has none", name, u.Scheme)
			}
			return fmt.Errorf("unknown parameter %s; there are %s", name, strings.Join(known, ", "))
		}
		if len(query[name]) > 1 {
			return fmt.Errorf("the parameter %s stands twice", name)
		}
	}
	return nil
}

// Within returns the keys of a store below a folder as a store of its own.
func Within(s Store, folder string) Store { return &part{Store: s, folder: folder + "/"} }

// part is a folder of a store.
type part struct {
	Store
	folder string
}

func (p *part) Read(ctx context.Context, key string) ([]byte, error) {
	return p.Store.Read(ctx, p.folder+key)
}

func (p *part) Create(ctx context.Context, key string, value []byte) error {
	return p.Store.Create(ctx, p.folder+key, value)
}

func (p *part) Delete(ctx context.Context, key string) error {
	return p.Store.Delete(ctx, p.folder+key)
}

func (p *part) List(ctx context.Context, prefix string) ([]string, error) {
	keys, err := p.Store.List(ctx, p.folder+prefix)
	for i := range keys {
		keys[i] = strings.TrimPrefix(keys[i], p.folder)
	}
	return keys, err
}

func (p *part) Sizes(ctx context.Context, prefix string) (map[string]int64, error) {
	all, err := p.Store.Sizes(ctx, p.folder+prefix)
	sizes := make(map[string]int64, len(all))
	for key, size := range all {
		sizes[strings.TrimPrefix(key, p.folder)] = size
	}
	return sizes, err
}

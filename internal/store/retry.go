package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"regexp"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/network"
)

// limit is how long an operation may take, with all its attempts.
const limit = 20 * time.Second

// errNoAnswer is the cause of an operation's context whose time has passed.
var errNoAnswer = errors.New("no answer in time")

// validKey matches keys. A part that begins with a dot would be hidden in a folder, or lead out of it.
var validKey = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)

// validPrefix matches what List takes.
var validPrefix = regexp.MustCompile(`^([A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?)?$`)

// A backend is one system. Its methods make one attempt.
type backend interface {
	read(ctx context.Context, key string) ([]byte, error)       // may match fs.ErrNotExist
	create(ctx context.Context, key string, value []byte) error // may match fs.ErrExist
	list(ctx context.Context, prefix string) (map[string]int64, error)
	remove(ctx context.Context, key string) error // may match fs.ErrNotExist
	classify(err error) class
	close() error
}

// A class is what an error means.
type class struct {
	kind   Kind
	passes bool   // another attempt may succeed
	text   string // says what happened, shorter than the error; empty: the error does
}

// retried is a backend whose operations have a limit and are repeated within it.
type retried struct {
	url     string
	backend backend
	limit   time.Duration
}

func (r *retried) URL() string { return r.url }

func (r *retried) Close() error { return r.backend.close() }

func (r *retried) Read(ctx context.Context, key string) (value []byte, err error) {
	err = r.do(ctx, "read", key, func(ctx context.Context) (err error) {
		value, err = r.backend.read(ctx, key)
		return err
	})
	return value, err
}

func (r *retried) Create(ctx context.Context, key string, value []byte) error {
	return r.do(ctx, "create", key, func(ctx context.Context) error {
		return r.backend.create(ctx, key, value)
	})
}

func (r *retried) List(ctx context.Context, prefix string) (keys []string, err error) {
	sizes, err := r.Sizes(ctx, prefix)
	return slices.Sorted(maps.Keys(sizes)), err
}

func (r *retried) Sizes(ctx context.Context, prefix string) (sizes map[string]int64, err error) {
	err = r.do(ctx, "list", prefix, func(ctx context.Context) (err error) {
		sizes, err = r.backend.list(ctx, prefix)
		return err
	})
	return sizes, err
}

func (r *retried) Delete(ctx context.Context, key string) error {
	err := r.do(ctx, "delete", key, func(ctx context.Context) error { return r.backend.remove(ctx, key) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// do repeats an operation until it succeeds, fails for good, or its time has passed.
func (r *retried) do(parent context.Context, op, key string, attempt func(context.Context) error) error {
	failed := func(kind Kind, err error) error {
		return &Error{URL: r.url, Op: op, Key: key, Kind: kind, Err: err}
	}
	if valid := validKey; !valid.MatchString(key) && (op != "list" || !validPrefix.MatchString(key)) {
		return failed(Failed, fmt.Errorf("invalid key %q", key))
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(parent, r.limit, errNoAnswer)
	defer cancel()
	var last error // of an attempt that had time enough
	kind := Away
	pauses := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 8,
		Cap: 3 * time.Second}
	for {
		if ctx.Err() == nil {
			err := attempt(ctx)
			switch {
			case err == nil:
				return nil
			case errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("%s: %s %s: %w", r.url, op, key, err)
			}
			if ctx.Err() == nil {
				c := r.backend.classify(err)
				if c.text != "" {
					err = &described{text: c.text, err: err}
				}
				if !c.passes {
					return failed(c.kind, err)
				}
				last, kind = err, c.kind
			}
		}
		select {
		case <-ctx.Done():
			cause := context.Cause(ctx)
			took := time.Since(begun).Round(100 * time.Millisecond)
			switch {
			case !errors.Is(cause, errNoAnswer) && !errors.Is(cause, context.DeadlineExceeded):
				return cause
			case last != nil:
				cause = fmt.Errorf("given up after %s: %w", took, last)
			default:
				cause = fmt.Errorf("no answer within %s", took)
			}
			return failed(kind, cause)
		case <-time.After(pauses.Step()):
		}
	}
}

// described is an error with a shorter text.
type described struct {
	text string
	err  error
}

func (d *described) Error() string { return d.text }

func (d *described) Unwrap() error { return d.err }

// connection classifies errors of the connection that all systems have alike.
func connection(err error) class {
	if dns, is := errors.AsType[*net.DNSError](err); is {
		return class{kind: Away, passes: !dns.IsNotFound, text: dns.Error()}
	}
	text := ""
	if failed, is := errors.AsType[*net.OpError](err); is {
		text = failed.Error()
	}
	if network.Interrupted(err) {
		return class{kind: Away, passes: true, text: text}
	}
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return class{kind: Full}
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return class{kind: Refused}
	}
	return class{kind: Failed}
}

package workingcopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/store"
)

// loop commits what changes, and what a caller waits for.
func (h *Held) loop(ctx context.Context) {
	ticker := time.NewTicker(scanInterval)
	defer ticker.Stop()
	again := time.Now()
	pauses := retries()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.lost:
			return
		case r := <-h.requests:
			h.serve(ctx, r)
		case <-ticker.C:
			if time.Now().Before(again) {
				continue
			}
			err := within(ctx, h, func(ctx context.Context) error { return h.commit(ctx, "", false) })
			if err != nil {
				h.report(ctx, err)
				again = time.Now().Add(pauses.Step())
			} else {
				pauses = retries()
			}
		}
	}
}

// serve makes the commit that one caller and all who wait by now have asked for.
func (h *Held) serve(ctx context.Context, first request) {
	all := []request{first}
	for more := true; more; {
		select {
		case r := <-h.requests:
			all = append(all, r)
		default:
			more = false
		}
	}
	var whats []string
	all = slices.DeleteFunc(all, func(r request) bool {
		if r.do == nil {
			whats = append(whats, r.what)
			return false
		}
		r.done <- r.do(ctx)
		return true
	})
	if len(all) == 0 {
		return
	}
	slices.Sort(whats)
	err := persistently(ctx, h, "it starts nothing more", func(ctx context.Context) error {
		return h.commit(ctx, strings.Join(slices.Compact(whats), ", "), true)
	})
	for _, r := range all {
		r.done <- err
	}
}

// persistently repeats an attempt while the store is away, for as long as the lock lasts, or longer where the
// working copy is volatile. It tells the user that castle waits, and what castle does after that time: a
// request that is not answered reports its error only after 20 seconds.
func persistently(ctx context.Context, h *Held, afterwards string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.copy.waits)
	defer cancel()
	h.mu.Lock()
	quiet := patience
	if h.away {
		quiet = 0
	}
	h.mu.Unlock()
	waits := time.AfterFunc(quiet, func() {
		if ctx.Err() == nil {
			h.notice(fmt.Sprintf("castle waits for %s, for at most %s; after that, %s",
				h.copy.log.URL(), h.copy.waits, afterwards))
		}
	})
	defer waits.Stop()
	var last error
	for pauses := retries(); ; {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // else it only says that the time is over
			last = err
		}
		if !h.mayReturn(err) || ctx.Err() != nil {
			return last
		}
		h.report(ctx, err)
		select {
		case <-ctx.Done():
			return last
		case <-h.lost:
			return h.Cause()
		case <-time.After(pauses.Step()):
		}
	}
}

// within gives an attempt as long as the lock lasts: a connection can hang for ever.
func within(ctx context.Context, h *Held, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.lock.Lasts)
	defer cancel()
	return do(ctx)
}

func isAway(err error) bool { return isOf(err, store.Away) }

func isOf(err error, kinds ...store.Kind) bool {
	failed, is := errors.AsType[*store.Error](err)
	return is && slices.Contains(kinds, failed.Kind)
}

// mayReturn reports whether it helps to wait for a store. Where the working copy is volatile, a run also
// gives the user the time to mount the store's folder again, or to make room in it.
func (h *Held) mayReturn(err error) bool {
	return isAway(err) || h.copy.volatile && isOf(err, store.Missing, store.Full)
}

// report says once that the store is away.
func (h *Held) report(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.As(err, new(*LostError)) {
		return
	}
	h.mu.Lock()
	reported := h.away
	h.away = true
	h.mu.Unlock()
	if !reported {
		h.notice(fmt.Sprintf("castle cannot commit now, and tries again: %v", err))
	}
}

// beat gives a sign of life when there was no commit for a while.
func (h *Held) beat(ctx context.Context) {
	ticker := time.NewTicker(h.lock.Lasts / 16)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.lost:
			return
		case <-ticker.C:
		}
		err := within(ctx, h, func(ctx context.Context) error {
			return h.append(ctx, func(next *commits.Commit) bool {
				next.What = "sign of life"
				return commits.Elapsed(h.appended) >= h.lock.Lasts/4
			})
		})
		if err != nil {
			h.report(ctx, err)
		}
	}
}

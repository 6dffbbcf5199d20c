// Package finding is the result of a check of doctor, which the checked systems make too.
package finding

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Colour is the severity of a finding.
type Colour string

// The colours. Grey was not checked.
const (
	Green  Colour = "green"
	Yellow Colour = "yellow"
	Red    Colour = "red"
	Grey   Colour = "grey"
)

// Finding is the result of a check.
type Finding struct {
	Name   string `json:"name"` // "proxmox.token"
	Colour Colour `json:"colour"`
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty"`
}

// Check is a check, or a few that depend on each other.
type Check struct {
	Name string
	Run  func(context.Context) []Finding
}

// Good is one green finding.
func Good(format string, args ...any) []Finding {
	return []Finding{{Colour: Green, Text: fmt.Sprintf(format, args...)}}
}

// Warning is one yellow finding, with what to do about it.
func Warning(fix, format string, args ...any) []Finding {
	return []Finding{{Colour: Yellow, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

// Obstacle is one red finding, with what to do about it.
func Obstacle(fix, format string, args ...any) []Finding {
	return []Finding{{Colour: Red, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

// Unchecked is a check that could not be made, since a request failed or something is not known.
func Unchecked(why any) []Finding {
	return []Finding{{Colour: Grey, Text: fmt.Sprintf("not checked: %v", why)}}
}

// OrGood returns found, or a green finding if there is none.
func OrGood(found []Finding, format string, args ...any) []Finding {
	if len(found) > 0 {
		return found
	}
	return Good(format, args...)
}

// Reason is why a request failed, without its address; the timeout if that was the cause.
func Reason(ctx context.Context, err error) error {
	if long, ok := errors.AsType[*url.Error](err); ok {
		err = long.Err
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// Certificates of Talos and Kubernetes are valid from their creation on, and tokens for
// minutes, so clocks must not differ much.
const (
	skewWarning = 30 * time.Second
	skewError   = 5 * time.Minute
)

// Clock compares this machine's clock with another one, which is precise to a second.
func Clock(name, whose string, read func(context.Context) (time.Time, error)) Check {
	return Check{name, func(ctx context.Context) []Finding {
		before := time.Now()
		theirs, err := read(ctx)
		after := time.Now()
		switch {
		case err != nil:
			return Unchecked(fmt.Errorf("%s: %w", whose, Reason(ctx, err)))
		case theirs.IsZero():
			return Unchecked(whose + " sends no Date header")
		}
		// The other clock was read at some moment between before and after.
		skew := max(before.Add(-time.Second).Sub(theirs), theirs.Sub(after), 0).Round(time.Second)
		direction := "ahead of"
		if theirs.After(after) {
			direction = "behind"
		}
		const fix = "set both clocks by NTP: timedatectl, chronyc tracking"
		switch {
		case skew > skewError:
			return Obstacle(fix, "this machine is %s %s %s: certificates and tokens would not be valid", skew,
				direction, whose)
		case skew > skewWarning:
			return Warning(fix, "this machine is %s %s %s", skew, direction, whose)
		}
		return Good("equal to %s", whose)
	}}
}

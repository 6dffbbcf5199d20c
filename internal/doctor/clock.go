package doctor

import (
	"context"
	"net/http"
	"time"
)

// How far clocks may be apart. Certificates that Talos and Kubernetes make are
// valid from the moment of their making, and tokens for minutes.
const (
	apart  = 30 * time.Second
	broken = 5 * time.Minute
)

// clock compares this machine's clock with that of another, which says a full second.
func clock(name, whose string, ask func(context.Context) (time.Time, error)) question {
	return question{name, func(ctx context.Context) []Finding {
		before := time.Now()
		theirs, err := ask(ctx)
		after := time.Now()
		if err != nil {
			return grey("%s: %v", whose, reason(ctx, err))
		}
		if theirs.IsZero() {
			return grey("%s does not say what time it is", whose)
		}
		// What was said was true at some moment between question and answer.
		var off time.Duration
		if early := before.Add(-time.Second).Sub(theirs); early > 0 {
			off = early
		} else if late := theirs.Sub(after); late > 0 {
			off = late
		}
		direction := "ahead of"
		if theirs.After(after) {
			direction = "behind"
		}
		off = off.Round(time.Second)
		way := "set the clocks by NTP: timedatectl, chronyc tracking, here and there"
		switch {
		case off > broken:
			return red(way, "this machine is %s %s %s: certificates and tokens count as not yet valid, or no more", off, direction, whose)
		case off > apart:
			return yellow(way, "this machine is %s %s %s", off, direction, whose)
		}
		return green("as at %s", whose)
	}}
}

// clocks asks Infisical.
func (heard spoken) clocks() []question {
	var all []question
	for _, host := range heard.hosts {
		all = append(all, clock("infisical.clock", "Infisical", func(ctx context.Context) (time.Time, error) { return dateOf(ctx, host) }))
	}
	return all
}

// dateOf is the Date that a server puts on whatever it answers; zero if it does not.
func dateOf(ctx context.Context, address string) (time.Time, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/status", nil)
	if err != nil {
		return time.Time{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	defer response.Body.Close() //nolint:errcheck // it is not read
	at, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return time.Time{}, nil // no reason to doubt anything
	}
	return at, nil
}

package cluster

import (
	"strings"
	"sync"
	"time"
)

// Asks remembers castle's requests to the API, so that a fault lasts until castle has met it, and when
// anybody but the lab itself asked last.
type Asks struct {
	mu   sync.Mutex
	all  []ask
	last time.Time
}

type ask struct {
	at  time.Time
	url string
}

// mostAsks bounds the memory: a gate asks every few seconds, and all of them together some hundred times a
// minute.
const mostAsks = 4096

// Add records a request for a URL.
func (a *Asks) Add(at time.Time, url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) == mostAsks {
		a.all = append(a.all[:0], a.all[mostAsks/2:]...)
	}
	a.all = append(a.all, ask{at, url})
}

// Outside records that somebody outside of the lab has sent a request.
func (a *Asks) Outside(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = at
}

// Quiet reports whether nobody outside of the lab has sent a request in the time before now.
func (a *Asks) Quiet(now time.Time, before time.Duration) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Sub(a.last) > before
}

// since is the time of the first request for a URL with this part after began; zero if there was none.
func (a *Asks) since(part string, began time.Time) time.Time {
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ask := range a.all {
		if ask.at.After(began) && strings.Contains(ask.url, part) {
			return ask.at
		}
	}
	return time.Time{}
}

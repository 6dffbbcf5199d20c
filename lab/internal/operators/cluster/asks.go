package cluster

import (
	"strings"
	"sync"
	"time"
)

// Asks remembers castle's requests to the API, so that a fault lasts until castle has met it.
type Asks struct {
	mu  sync.Mutex
	all []ask
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

package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
)

// liar stands in front of a server and spoils one answer in five, after the request has had its effect: a
// failure, a reset, an answer cut short, null data, a proxy's page. No request gets more than three such
// answers in a row, so that a script knows its end.
type liar struct {
	mu     sync.Mutex
	random *rand.Rand // nil: it tells the truth
	lies   int
	row    map[string]int // by request
}

// start makes it lie, in an order that a seed gives.
func (l *liar) start(seed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.random, l.row = rand.New(rand.NewPCG(seed, 12)), map[string]int{}
}

func (l *liar) stop() (lies int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.random = nil
	return l.lies
}

// next chooses a lie; -1 is the truth.
func (l *liar) next(request string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.random == nil || l.random.IntN(5) > 0 || l.row[request] == 3 {
		if l.row != nil {
			l.row[request] = 0
		}
		return -1
	}
	l.row[request]++
	l.lies++
	return l.random.IntN(5)
}

func (l *liar) front(truth http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lie := l.next(r.Method + " " + r.URL.String())
		if lie < 0 {
			truth.ServeHTTP(w, r)
			return
		}
		kept := httptest.NewRecorder()
		truth.ServeHTTP(kept, r)
		body := kept.Body.Bytes()
		switch lie {
		case 0:
			panic(http.ErrAbortHandler) // resets the connection
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			fmt.Fprint(w, `{"data":null}`) //nolint:errcheck // the client is gone
		case 3:
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "<html>does not exist</html>") //nolint:errcheck // likewise
		case 4:
			w.Header().Set("Content-Type", "application/json;charset=UTF-8")
			w.WriteHeader(kept.Code)
			w.Write(body[:len(body)/2]) //nolint:errcheck // likewise
		}
	})
}

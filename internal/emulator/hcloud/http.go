package hcloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// Request is one call as it arrived, with the answer that it got.
type Request struct {
	Method string
	Path   string // below /v1, without the leading slash
	Query  string
	Body   string
	Status int
	Code   string // of an error; empty when the call was accepted
	At     time.Time
}

// Fault changes the effect of the calls that it matches.
type Fault struct {
	Method string // any, if empty
	Path   string // any, or a pattern of path.Match for the path below /v1: "servers/*/actions/poweron"
	Body   string // what the body contains
	Times  int    // how many calls it affects; all, if 0
	// Lasts ends it that long after the first call that it affects.
	Lasts time.Duration
	// Status, when set, answers with this status, Code and Message, and does nothing else.
	Status        int
	Code, Message string
	// Action ends the actions of the call with this error code and without effect.
	Action string
	// Hold keeps the actions of the call from ending until it is closed.
	Hold <-chan struct{}
	// Drop closes the connection after the call has had its effect.
	Drop bool
	// Before runs right before the call has its effect, without a lock: somebody else was quicker.
	Before func()
	until  time.Time // the end of Lasts
}

// handler answers a call, under the server's mutex. Its value is the body; nil is 204.
type handler func(*call) (any, error)

// call is a request on its way through a handler.
type call struct {
	s      *Server
	r      *http.Request
	body   []byte
	header http.Header
	fault  Fault
	begun  []*action
}

// apiError is an error in the form of the API.
type apiError struct {
	status        int
	code, message string
	details       any
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func fail(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// refuse is an error of a request that is well-formed, and that the state of the project does not allow.
func refuse(code, format string, args ...any) *apiError {
	return fail(http.StatusUnprocessableEntity, code, format, args...)
}

// invalid is the error of a field.
func invalid(field, message string) *apiError {
	e := refuse("invalid_input", "invalid input in field '%s'", field)
	e.details = map[string]any{"fields": []any{map[string]any{"name": field, "messages": []string{message}}}}
	return e
}

func decode[T any](c *call) (in T, err error) {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return in, nil
	}
	if err := json.Unmarshal(c.body, &in); err != nil {
		return in, fail(http.StatusBadRequest, "json_error", "invalid JSON: %v", err)
	}
	return in, nil
}

// budget counts the requests that are left: one more each second, up to the limit.
type budget struct {
	limit int
	used  float64
	at    time.Time
}

// spend takes one request. reset is the time at which all are available again.
func (b *budget) spend(now time.Time) (remaining int, reset time.Time, ok bool) {
	b.used, b.at = max(0, b.used-now.Sub(b.at).Seconds()), now
	if ok = b.used+1 <= float64(b.limit); ok {
		b.used++
	}
	return b.limit - int(b.used), now.Add(time.Duration(b.used * float64(time.Second))), ok
}

func (s *Server) handle(pattern string, h handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, h) })
}

// ServeHTTP answers the API below /v1.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mux.ServeHTTP(w, r)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, h handler) {
	c := &call{s: s, r: r, header: w.Header()}
	record := Request{Method: r.Method, Path: strings.TrimPrefix(r.URL.Path, "/v1/"), Query: r.URL.RawQuery,
		At: time.Now()}
	c.body, _ = io.ReadAll(io.LimitReader(r.Body, 1<<20)) //nolint:errcheck // a body that is cut is no JSON
	record.Body = string(c.body)
	body, err := c.run(h)
	status := map[string]int{http.MethodPost: http.StatusCreated}[r.Method]
	switch e, failed := err.(*apiError); {
	case failed:
		status, record.Code = e.status, e.code
		body = map[string]any{"error": map[string]any{"code": e.code, "message": e.message,
			"details": e.details}}
	case body == nil:
		status = http.StatusNoContent
	case status == 0:
		status = http.StatusOK
	}
	record.Status = status
	s.mu.Lock()
	s.requests = append(s.requests, record)
	s.derive()
	text, err := json.Marshal(body)
	s.mu.Unlock()
	if c.fault.Drop || err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		w.Write(text) //nolint:errcheck // the client is gone
	}
}

// run admits a call, and executes its handler. It waits for actions that take no time.
func (c *call) run(h handler) (any, error) {
	if err := c.admitted(); err != nil {
		return nil, err
	}
	if c.fault.Status == http.StatusTooManyRequests && !c.fault.until.IsZero() {
		c.header.Set("RateLimit-Remaining", "0")
		c.header.Set("RateLimit-Reset", strconv.FormatInt(c.fault.until.Unix()+1, 10))
	}
	if c.fault.Before != nil {
		c.fault.Before()
	}
	if c.fault.Status != 0 {
		return nil, fail(c.fault.Status, c.fault.Code, "%s", c.fault.Message)
	}
	c.s.mu.Lock()
	body, err := h(c)
	c.s.mu.Unlock()
	for _, a := range c.begun {
		if a.duration == 0 && c.fault.Hold == nil {
			<-a.done
		}
	}
	return body, err
}

// admitted checks the token and the rate limit, and finds the call's fault.
func (c *call) admitted() error {
	s := c.s
	defer s.locked()()
	token, isBearer := strings.CutPrefix(c.r.Header.Get("Authorization"), "Bearer ")
	if !isBearer || token == "" || token != s.config.Token && token != s.config.ReadOnly {
		return fail(http.StatusUnauthorized, "unauthorized", "unable to authenticate")
	}
	remaining, reset, ok := s.budget.spend(time.Now())
	c.header.Set("RateLimit-Limit", strconv.Itoa(s.budget.limit))
	c.header.Set("RateLimit-Remaining", strconv.Itoa(remaining))
	c.header.Set("RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
	if !ok {
		return fail(http.StatusTooManyRequests, "rate_limit_exceeded",
			"limit of %d requests per hour reached",
			s.budget.limit)
	}
	if token != s.config.Token && c.r.Method != http.MethodGet {
		return fail(http.StatusUnauthorized, "token_readonly",
			"token is only allowed to perform GET requests")
	}
	below := strings.TrimPrefix(c.r.URL.Path, "/v1/")
	for i, f := range s.faults {
		matches, _ := path.Match(f.Path, below) //nolint:errcheck // a malformed pattern matches nothing
		over := !f.until.IsZero() && time.Now().After(f.until)
		if over || !matches && f.Path != "" || f.Method != "" && f.Method != c.r.Method ||
			!strings.Contains(string(c.body), f.Body) {
			continue
		}
		if f.Lasts > 0 && f.until.IsZero() {
			f.until = time.Now().Add(f.Lasts)
		}
		c.fault = *f
		if f.Times--; f.Times == 0 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		break
	}
	return nil
}

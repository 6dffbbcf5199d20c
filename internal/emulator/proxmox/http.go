package proxmox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const prefix = "/api2/json"

// Request is one call as it arrived, with the answer that it got.
type Request struct {
	Method string
	Path   string // decoded, below /api2/json, without the leading slash
	Params url.Values
	Status int
	Error  string // the error's text; empty when the call was accepted
	At     time.Time
}

// Requests lists every call so far, oldest first. Credentials are not kept.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// call is a request on its way through a handler.
type call struct {
	method string
	path   string
	route  route
	vars   map[string]string // what the route's pattern captured
	params url.Values
	user   string // root@pam, or user@realm!token
	fault  *Fault
}

func (c *call) get(name string) string { return c.params.Get(name) }

// flag reads a boolean parameter as lenient as the real schema does.
func (c *call) flag(name string) bool {
	on, err := parseBool(c.get(name))
	return err == nil && on
}

func (c *call) vmid() int {
	id, err := strconv.Atoi(c.vars["vmid"])
	if err != nil {
		return 0
	}
	return id
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c, err := s.read(r)
	var data any
	if err == nil {
		data, err = s.answer(c, r)
	}
	var fail *failure
	if err != nil && !errors.As(err, &fail) {
		fail = internal("%v", err)
	}
	s.record(c, fail)
	switch {
	case c.fault != nil && c.fault.Drop:
		drop(w)
	case fail == nil:
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		w.Header().Set("Server", "pve-api-daemon/3.0")
		if err := json.NewEncoder(w).Encode(map[string]any{"data": data}); err != nil {
			drop(w)
		}
	default:
		if fail.code == http.StatusUnauthorized && !fail.envelope {
			s.pause(r)
		}
		write(w, r, fail, s.before(8, 4, 0))
	}
}

// read takes the request apart. Path segments are decoded one by one: clients
// send "!" and "/" inside a segment percent-encoded.
func (s *Server) read(r *http.Request) (*call, error) {
	c := &call{method: r.Method, params: url.Values{}}
	escaped := strings.TrimSuffix(strings.TrimPrefix(r.URL.EscapedPath(), prefix), "/")
	segments := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return c, &failure{code: http.StatusBadRequest, text: "bad request"}
		}
		segments[i] = plain
	}
	c.path = strings.Join(segments, "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return c, &failure{code: http.StatusBadRequest, text: "bad request"}
	}
	if len(body) > 0 && (r.Method == http.MethodGet || r.Method == http.MethodDelete) {
		return c, &failure{code: http.StatusNotImplemented, text: fmt.Sprintf("Unexpected content for method '%s'", r.Method)}
	}
	if err := c.parse(r.URL.RawQuery, body, r.Header.Get("Content-Type")); err != nil {
		return c, err
	}
	if err := s.match(c, segments); err != nil {
		return c, err
	}
	for name, value := range c.vars {
		if given := c.params.Get(name); c.params.Has(name) && given != value {
			return c, badParameter(name, "duplicate parameter (already defined in URI) with conflicting values!")
		}
	}
	return c, nil
}

// parse reads parameters from the query and from the body, which counts as a
// form whatever its Content-Type says, unless that says JSON.
func (c *call) parse(query string, body []byte, contentType string) error {
	bad := &failure{code: http.StatusBadRequest, text: "unable to decode request parameters"}
	if strings.HasPrefix(contentType, "application/json") {
		var fields map[string]any
		if err := json.Unmarshal(body, &fields); err != nil {
			return bad
		}
		for name, value := range fields {
			c.params.Set(name, fmt.Sprint(value))
		}
		body = nil
	}
	for _, part := range []string{string(body), query} {
		values, err := url.ParseQuery(part)
		if err != nil {
			return bad
		}
		for name, all := range values {
			c.params[name] = all
		}
	}
	return nil
}

func (s *Server) record(c *call, fail *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := Request{Method: c.method, Path: c.path, Params: c.params, Status: http.StatusOK, At: time.Now()}
	if fail != nil {
		kept.Status, kept.Error = fail.code, cmp.Or(fail.text, http.StatusText(fail.code))
	}
	if kept.Params.Has("password") {
		kept.Params.Set("password", "")
	}
	s.requests = append(s.requests, kept)
}

func (s *Server) pause(r *http.Request) {
	timer := time.NewTimer(s.config.AuthDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// write sends an error with its reason phrase. net/http cannot set one, so the
// connection is taken over where the protocol allows that; a real node closes
// it after an error anyway.
func write(w http.ResponseWriter, r *http.Request, fail *failure, silent bool) {
	body := fail.body(silent)
	kind := "application/json;charset=UTF-8"
	hijacker, ok := w.(http.Hijacker)
	if !ok || r.ProtoMajor != 1 {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(fail.code)
		io.WriteString(w, body) //nolint:errcheck // the client is gone
		return
	}
	conn, buffer, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // the answer is flushed
	fmt.Fprintf(buffer, "HTTP/1.1 %d %s\r\nServer: pve-api-daemon/3.0\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		fail.code, fail.reason(), kind, len(body), body)
	buffer.Flush() //nolint:errcheck // the client is gone
}

// drop cuts the connection instead of answering.
func drop(w http.ResponseWriter) {
	if hijacker, ok := w.(http.Hijacker); ok {
		if conn, _, err := hijacker.Hijack(); err == nil {
			conn.Close() //nolint:errcheck // that was the point
		}
	}
}

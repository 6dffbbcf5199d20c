package proxmox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

const prefix = "/api2/json/"

// Fault changes the effect of the calls that it matches.
type Fault struct {
	Method string // any, if empty
	// Path is a pattern of path.Match for the decoded path below /api2/json: "nodes/*/qemu/421/status/start".
	Path  string
	Times int // how many calls it affects; all, if 0
	// Code, when set, answers with this status and Text and does nothing else.
	Code int
	Text string
	// Task ends the task of the call with this exit status and without effect.
	Task string
	// Lock, when set, locks the guest of the call before it is answered.
	Lock string
	// Hold keeps the task of the call from ending until it is closed.
	Hold <-chan struct{}
	// Drop closes the connection after the call has had its effect.
	Drop bool
	// Before adds a guest right before the call has its effect: somebody else was quicker.
	Before *VM
}

// routes has the handler of each call, by a pattern of http.ServeMux below prefix.
func (s *Server) routes() map[string]rpc.Handler {
	return map[string]rpc.Handler{
		"GET version":                               s.version,
		"GET access/permissions":                    s.permissions,
		"POST " + loginPath:                         s.login,
		"GET access/users/{userid}/token/{tokenid}": s.readToken,
		"GET cluster/resources":                     s.resources,
		"GET nodes":                                 s.listNodes,
	}
}

// Handler answers the API below /api2/json. Reason phrases, the only error text of
// older releases, need HTTP/1.1: see HTTPServer.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", s.serve(nil))
	for _, routes := range []map[string]rpc.Handler{s.routes(), s.workers.Routes(), s.disks.Routes(),
		s.guests.Routes(), s.ha.Routes()} {
		for pattern, handle := range routes {
			mux.HandleFunc(strings.Replace(pattern, " ", " "+prefix, 1), s.serve(handle))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := r.URL // a slash at the end has no effect
		u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
		mux.ServeHTTP(w, r)
	})
}

// serve runs a handler, records the request and writes the answer.
func (s *Server) serve(handle rpc.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := s.workers.Call(s.access.As(""), rpc.Request{
			Method: r.Method, Path: strings.TrimPrefix(r.URL.Path, prefix), Params: url.Values{},
		})
		data, fault, err := s.run(c, r, handle)
		fail, ok := errors.AsType[*failure.Answer](err)
		if err != nil && !ok {
			fail = failure.Internal("%v", err)
		}
		s.record(c.Request, fail)
		if c.After != nil {
			c.After()
		}
		switch {
		case fault.Drop:
			panic(http.ErrAbortHandler) // closes the connection
		case fail != nil:
			fail.Write(w, s.config.before(8, 4, 0))
		default:
			w.Header().Set("Content-Type", failure.ContentType)
			w.Header().Set("Server", "pve-api-daemon/3.0")
			json.NewEncoder(w).Encode(map[string]any{"data": data}) //nolint:errcheck // the client is gone
		}
	}
}

// run reads the request, authenticates the caller and runs the call's handler. It returns the fault that
// affects the call; an empty one if there is none.
func (s *Server) run(c *rpc.Call, r *http.Request, handle rpc.Handler) (_ any, fault Fault, err error) {
	if err := read(r, c.Request.Params); err != nil {
		return nil, fault, err
	}
	if handle == nil {
		return nil, fault, failure.NotImplemented(c.Request.Method, c.Request.Path)
	}
	defer s.locked()()
	if c.Request.Path != loginPath {
		if c.Caller.ID, err = s.access.Authenticate(r); err != nil {
			return nil, fault, err
		}
	}
	fault = s.takeFault(c.Request)
	c.Fault = rpc.Fault{Hold: fault.Hold, Exit: fault.Task}
	id, node, params := c.VMID(), c.Get("node"), c.Request.Params
	if g := s.guests.Get(id); g != nil && fault.Lock != "" {
		g.Set("lock", fault.Lock)
	}
	if fault.Before != nil {
		s.guests.Add(*fault.Before)
	}
	switch {
	case fault.Code != 0:
		err = &failure.Answer{Code: fault.Code, Text: fault.Text, Envelope: fault.Code < 595}
	case params.Has("vmid") && (id < 100 || id > 999999999):
		err = failure.BadParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
	case params.Has("skiplock"):
		err = failure.BadParameter("skiplock", "Only root may use this option.")
	case node != "" && !slices.Contains(s.config.Nodes, node):
		err = failure.Internal("hostname lookup '%s' failed - failed to get address info for: %[1]s: "+
			"Name or service not known", node)
	case s.offline[node]:
		err = &failure.Answer{Code: 595, Text: "No route to host"}
	}
	if err != nil {
		return nil, fault, err
	}
	data, err := handle(c)
	return data, fault, err
}

var wildcard = regexp.MustCompile(`\{(\w+)`)

// read reads the parameters from the query, the body and the path. The body counts as a form under any
// Content-Type except JSON.
func read(r *http.Request, params url.Values) error {
	body, err := io.ReadAll(r.Body)
	if len(body) > 0 && (r.Method == http.MethodGet || r.Method == http.MethodDelete) {
		text := fmt.Sprintf("Unexpected content for method '%s'", r.Method)
		return &failure.Answer{Code: http.StatusNotImplemented, Text: text}
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		var fields map[string]any
		err = errors.Join(err, json.Unmarshal(body, &fields))
		for name, value := range fields {
			params.Set(name, fmt.Sprint(value))
		}
		body = nil
	}
	for _, part := range []string{string(body), r.URL.RawQuery} {
		values, bad := url.ParseQuery(part)
		err = errors.Join(err, bad)
		maps.Copy(params, values)
	}
	if err != nil {
		return &failure.Answer{Code: http.StatusBadRequest, Text: "unable to decode request parameters"}
	}
	for _, found := range wildcard.FindAllStringSubmatch(r.Pattern, -1) {
		name, value := found[1], r.PathValue(found[1])
		if params.Has(name) && params.Get(name) != value {
			return failure.BadParameter(name,
				"duplicate parameter (already defined in URI) with conflicting values!")
		}
		params.Set(name, value)
	}
	return nil
}

// takeFault returns the fault that affects a call; an empty one if there is none.
func (s *Server) takeFault(r rpc.Request) Fault {
	for i, f := range s.faults {
		ok, err := path.Match(f.Path, r.Path)
		if !ok || err != nil || f.Method != "" && f.Method != r.Method {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		return *f
	}
	return Fault{}
}

// record adds a request to those that Requests returns.
func (s *Server) record(r rpc.Request, fail *failure.Answer) {
	defer s.locked()()
	r.Status, r.At = http.StatusOK, time.Now()
	if fail != nil {
		r.Status, r.Error = fail.Code, cmp.Or(fail.Text, http.StatusText(fail.Code))
	}
	if r.Params.Has("password") {
		r.Params.Set("password", "")
	}
	s.requests = append(s.requests, r)
}

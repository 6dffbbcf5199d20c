package proxmox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const prefix = "/api2/json/"

// Request is one call as it arrived, with the answer that it got.
type Request struct {
	Method string
	Path   string // decoded, below /api2/json, without the leading slash
	Params url.Values
	Status int
	Error  string // the error's text; empty when the call was accepted
	At     time.Time
}

// Fault changes the effect of the calls that it matches.
type Fault struct {
	Method string // any, if empty
	// Path is a pattern of path.Match for the decoded path below /api2/json:
	// "nodes/*/qemu/421/status/start".
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
}

// route is one call of the API; a pattern is one of http.ServeMux below prefix.
// Handlers run under the lock.
type route struct {
	method, pattern string
	handle          handler
}

type handler func(*call) (any, error)

// call is a request on its way through a handler.
type call struct {
	method string
	path   string
	route  route
	vars   map[string]string // the wildcards of the route's pattern
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
	id, _ := strconv.Atoi(c.vars["vmid"]) //nolint:errcheck // 0 is no guest's id
	return id
}

// api reads requests, runs their handlers and writes the answers.
type api struct {
	config   *Config
	mu       *sync.Mutex
	mux      *http.ServeMux
	access   *access
	guests   *guests
	cluster  *cluster
	faults   []*Fault
	requests []Request
}

// register adds the routes, and an answer to all other requests.
func (a *api) register(routes []route) {
	a.mux = http.NewServeMux()
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, route{}) })
	for _, to := range routes {
		a.mux.HandleFunc(to.method+" "+prefix+to.pattern, func(w http.ResponseWriter, r *http.Request) {
			a.serve(w, r, to)
		})
	}
}

// ServeHTTP ignores a slash at the end of the path.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.URL.Path, r.URL.RawPath = strings.TrimSuffix(r.URL.Path, "/"), strings.TrimSuffix(r.URL.RawPath, "/")
	a.mux.ServeHTTP(w, r)
}

func (a *api) serve(w http.ResponseWriter, r *http.Request, to route) {
	c := &call{
		method: r.Method, path: strings.TrimPrefix(r.URL.Path, prefix), route: to,
		vars: map[string]string{}, params: url.Values{},
	}
	err := c.read(r)
	var data any
	if err == nil {
		data, err = a.answer(c, r)
	}
	var fail *failure
	if err != nil && !errors.As(err, &fail) {
		fail = internal("%v", err)
	}
	a.record(c, fail)
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
			select {
			case <-time.After(a.config.AuthDelay):
			case <-r.Context().Done():
			}
		}
		fail.write(w, r, a.config.before(8, 4, 0))
	}
}

var wildcard = regexp.MustCompile(`\{(\w+)`)

// read reads the parameters and the wildcards of the path.
func (c *call) read(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return &failure{code: http.StatusBadRequest, text: "bad request"}
	case len(body) > 0 && (r.Method == http.MethodGet || r.Method == http.MethodDelete):
		text := fmt.Sprintf("Unexpected content for method '%s'", r.Method)
		return &failure{code: http.StatusNotImplemented, text: text}
	}
	if err := c.parse(r.URL.RawQuery, body, r.Header.Get("Content-Type")); err != nil {
		return err
	}
	if c.route.handle == nil {
		text := fmt.Sprintf("Method '%s /%s' not implemented", c.method, c.path)
		return &failure{code: http.StatusNotImplemented, text: text, envelope: true}
	}
	for _, name := range wildcard.FindAllStringSubmatch(c.route.pattern, -1) {
		c.vars[name[1]] = r.PathValue(name[1])
	}
	if id := c.vmid(); strings.Contains(c.route.pattern, "{vmid}") && (id < 100 || id > 999999999) {
		return badParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
	}
	for name, value := range c.vars {
		if c.params.Has(name) && c.get(name) != value {
			return badParameter(name, "duplicate parameter (already defined in URI) with conflicting values!")
		}
	}
	return nil
}

// parse reads parameters from the query and from the body. The body counts as a form under any Content-Type
// except JSON.
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

// answer authenticates the caller and runs the call's handler.
func (a *api) answer(c *call, r *http.Request) (_ any, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.route.pattern != loginPath {
		if c.user, err = a.access.authenticate(r); err != nil {
			return nil, err
		}
	}
	c.fault = a.takeFault(c)
	if f := c.fault; f != nil && f.Code != 0 {
		return nil, &failure{code: f.Code, text: f.Text, envelope: f.Code < 595}
	}
	if g := a.guests.all[c.vmid()]; g != nil && c.fault != nil && c.fault.Lock != "" {
		g.Config["lock"] = c.fault.Lock
	}
	if node, ok := c.vars["node"]; ok {
		switch {
		case !slices.Contains(a.config.Nodes, node):
			return nil, internal("hostname lookup '%s' failed - failed to get address info for: %s: "+
				"Name or service not known", node, node)
		case a.cluster.offline[node]:
			return nil, &failure{code: 595, text: "No route to host"}
		}
	}
	return c.route.handle(c)
}

func (a *api) takeFault(c *call) *Fault {
	for i, f := range a.faults {
		ok, err := path.Match(f.Path, c.path)
		if !ok || err != nil || f.Method != "" && f.Method != c.method {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				a.faults = slices.Delete(slices.Clone(a.faults), i, i+1)
			}
		}
		return f
	}
	return nil
}

func (a *api) record(c *call, fail *failure) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := Request{Method: c.method, Path: c.path, Params: c.params, Status: http.StatusOK, At: time.Now()}
	if fail != nil {
		kept.Status, kept.Error = fail.code, cmp.Or(fail.text, http.StatusText(fail.code))
	}
	if kept.Params.Has("password") {
		kept.Params.Set("password", "")
	}
	a.requests = append(a.requests, kept)
}

// drop closes the connection without an answer.
func drop(w http.ResponseWriter) {
	if hijacker, ok := w.(http.Hijacker); ok {
		if conn, _, err := hijacker.Hijack(); err == nil {
			conn.Close() //nolint:errcheck // the connection is given up
		}
	}
}

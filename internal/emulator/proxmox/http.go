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
	"strconv"
	"strings"
	"time"
)

const prefix = "/api2/json/"

// Request is one call as it arrived, with the answer that it got.
type Request struct {
	Method string
	Path   string     // decoded, below /api2/json, without the leading slash
	Params url.Values // of the path, the query and the body
	Status int
	Error  string // the error's text; empty when the call was accepted
	At     time.Time
}

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
var routes = map[string]handler{
	"GET version":             version,
	"GET access/permissions":  permissions,
	"POST " + loginPath:       login,
	"GET " + tokenPath:        readToken,
	"GET cluster/resources":   resources,
	"GET cluster/nextid":      nextID,
	"GET cluster/replication": replication,
	"GET pools":               listPools,
	"PUT pools":               updatePool,
	"GET nodes":               func(c *call) (any, error) { return nodeRows(c.s), nil },

	"GET cluster/ha/resources":          onHA(listResources),
	"POST cluster/ha/resources":         onHA(addResource),
	"GET cluster/ha/resources/{sid}":    onHA(showResource),
	"PUT cluster/ha/resources/{sid}":    onHA(updateResource),
	"DELETE cluster/ha/resources/{sid}": onHA(removeResource),
	"GET cluster/ha/rules":              onHA(listRules),
	"POST cluster/ha/rules":             onHA(addRule),
	"GET cluster/ha/rules/{rule}":       onHA(showRule),
	"PUT cluster/ha/rules/{rule}":       onHA(updateRule),
	"DELETE cluster/ha/rules/{rule}":    onHA(removeRule),

	"GET cluster/mapping/pci":  listMappings("pci"),
	"GET cluster/mapping/usb":  listMappings("usb"),
	"GET nodes/{node}/network": listBridges,

	"GET nodes/{node}/tasks":               listTasks,
	"DELETE nodes/{node}/tasks/{upid}":     onTask("Sys.Modify", (*task).cancel),
	"GET nodes/{node}/tasks/{upid}/status": onTask("Sys.Audit", (*task).status),
	"GET nodes/{node}/tasks/{upid}/log":    onTask("Sys.Audit", (*task).lines),

	"GET nodes/{node}/storage":                       listStorages,
	"GET nodes/{node}/query-url-metadata":            queryURL,
	"GET " + storagePath + "/status":                 onStorage(visible, showStorage),
	"GET " + storagePath + "/content":                onStorage(visible, listContent),
	"GET " + storagePath + "/content/{volume...}":    onStorage("", showVolume),
	"DELETE " + storagePath + "/content/{volume...}": onStorage("Datastore.Allocate", removeVolume),
	"POST " + storagePath + "/download-url":          onStorage("Datastore.AllocateTemplate", download),

	"GET nodes/{node}/qemu":                              listGuests,
	"POST nodes/{node}/qemu":                             create,
	"GET nodes/{node}/lxc/{vmid}/config":                 onGuest("lxc", "VM.Audit", showConfig),
	"GET " + guestPath + "/config":                       onGuest("qemu", "VM.Audit", showConfig),
	"GET " + guestPath + "/pending":                      onGuest("qemu", "VM.Audit", showPending),
	"PUT " + guestPath + "/config":                       onGuest("qemu", anyConfig, update),
	"PUT " + guestPath + "/resize":                       onGuest("qemu", "VM.Config.Disk", resize),
	"PUT " + guestPath + "/cloudinit":                    onGuest("qemu", "VM.Config.Cloudinit", regenerate),
	"POST " + guestPath + "/agent/ping":                  onGuest("qemu", "VM.GuestAgent.Audit", agentPing),
	"GET " + guestPath + "/agent/network-get-interfaces": onGuest("qemu", "VM.GuestAgent.Audit", agentCards),
	"GET " + guestPath + "/status/current":               onGuest("qemu", "VM.Audit", showStatus),
	"POST " + guestPath + "/status/start":                power("start", start),
	"POST " + guestPath + "/status/stop":                 power("stop", stop),
	"POST " + guestPath + "/status/shutdown":             power("shutdown", stop),
	"POST " + guestPath + "/status/reboot":               power("reboot", reboot),
	"POST " + guestPath + "/clone":                       onGuest("qemu", "VM.Clone", clone),
	"POST " + guestPath + "/migrate":                     onGuest("qemu", "VM.Migrate", migrate),
	"GET " + snapshotPath:                                onGuest("qemu", "VM.Audit", listSnapshots),
	"POST " + snapshotPath:                               onGuest("qemu", "VM.Snapshot", takeSnapshot),
	"GET " + snapshotPath + "/{snapname}/config":         onGuest("qemu", anySnapshot, showSnapshot),
	"POST " + snapshotPath + "/{snapname}/rollback": onGuest("qemu", mayRollBack,
		onSnapshot("qmrollback", "rollback", rollBack)),
	"DELETE " + snapshotPath + "/{snapname}": onGuest("qemu", "VM.Snapshot",
		onSnapshot("qmdelsnapshot", "snapshot-delete", removeSnapshot)),
	"POST nodes/{node}/vzdump": backup,
	"DELETE " + guestPath:      onGuest("qemu", "VM.Allocate", destroy),
}

// Each of these is enough for a part of a call.
const (
	anyConfig = "VM.Config.Disk|VM.Config.CDROM|VM.Config.CPU|VM.Config.Memory|VM.Config.Network|" +
		"VM.Config.HWType|VM.Config.Options|VM.Config.Cloudinit"
	visible     = "Datastore.Audit|Datastore.AllocateSpace"
	mayRollBack = "VM.Snapshot|VM.Snapshot.Rollback"
	anySnapshot = mayRollBack + "|VM.Audit"
)

const (
	tokenPath    = "access/users/{userid}/token/{tokenid}"
	guestPath    = "nodes/{node}/qemu/{vmid}"
	snapshotPath = guestPath + "/snapshot"
	storagePath  = "nodes/{node}/storage/{storage}"
)

// handler answers a call, under the server's mutex.
type handler func(*call) (any, error)

// call is a request on its way through a handler.
type call struct {
	s       *Server
	request Request
	caller  caller
	fault   *Fault
	after   func() // if set, runs without the mutex before the answer
}

func (c *call) get(name string) string { return c.request.Params.Get(name) }

// flag reads a boolean parameter as lenient as the real schema does.
func (c *call) flag(name string) bool {
	on, ok := parseBool(c.get(name))
	return ok && on
}

func (c *call) vmid() int {
	id, _ := strconv.Atoi(c.get("vmid")) //nolint:errcheck // 0 is no guest's id
	return id
}

// Handler answers the API below /api2/json. Reason phrases, the only error text of
// older releases, need HTTP/1.1: see HTTPServer.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", serve(s, nil))
	for pattern, handle := range routes {
		mux.HandleFunc(strings.Replace(pattern, " ", " "+prefix, 1), serve(s, handle))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := r.URL // a slash at the end has no effect
		u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
		mux.ServeHTTP(w, r)
	})
}

const contentType = "application/json;charset=UTF-8"

// serve runs a handler, records the request and writes the answer.
func serve(s *Server, handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{s: s, caller: caller{access: s.access}, fault: &Fault{}, request: Request{
			Method: r.Method, Path: strings.TrimPrefix(r.URL.Path, prefix), Params: url.Values{},
		}}
		data, err := c.run(r, handle)
		fail, ok := errors.AsType[*failure](err)
		if err != nil && !ok {
			fail = internal("%v", err)
		}
		c.record(fail)
		if c.after != nil {
			c.after()
		}
		switch {
		case c.fault.Drop:
			panic(http.ErrAbortHandler) // closes the connection
		case fail != nil:
			fail.write(w, s.config.before(8, 4, 0))
		default:
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Server", "pve-api-daemon/3.0")
			json.NewEncoder(w).Encode(map[string]any{"data": data}) //nolint:errcheck // the client is gone
		}
	}
}

// run reads the request, authenticates the caller and runs the call's handler.
func (c *call) run(r *http.Request, handle handler) (_ any, err error) {
	if err := c.read(r); err != nil {
		return nil, err
	}
	if handle == nil {
		text := fmt.Sprintf("Method '%s /%s' not implemented", c.request.Method, c.request.Path)
		return nil, &failure{code: http.StatusNotImplemented, text: text, envelope: true}
	}
	s := c.s
	defer s.locked()()
	if c.request.Path != loginPath {
		if c.caller.id, err = s.access.authenticate(r, &s.config); err != nil {
			return nil, err
		}
	}
	id, node, params := c.vmid(), c.get("node"), c.request.Params
	c.fault = c.takeFault()
	if g := s.guests[id]; g != nil && c.fault.Lock != "" {
		g.set("lock", c.fault.Lock)
	}
	if c.fault.Before != nil {
		addVM(s, *c.fault.Before)
	}
	switch {
	case c.fault.Code != 0:
		return nil, &failure{code: c.fault.Code, text: c.fault.Text, envelope: c.fault.Code < 595}
	case params.Has("vmid") && (id < 100 || id > 999999999):
		return nil, badParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
	case params.Has("skiplock"):
		return nil, badParameter("skiplock", "Only root may use this option.")
	case node != "" && !slices.Contains(s.config.Nodes, node):
		return nil, internal("hostname lookup '%s' failed - failed to get address info for: %[1]s: "+
			"Name or service not known", node)
	case s.offline[node]:
		return nil, &failure{code: 595, text: "No route to host"}
	}
	return handle(c)
}

var wildcard = regexp.MustCompile(`\{(\w+)`)

// read reads the parameters from the query, the body and the path. The body counts as a form under any
// Content-Type except JSON.
func (c *call) read(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if len(body) > 0 && (r.Method == http.MethodGet || r.Method == http.MethodDelete) {
		text := fmt.Sprintf("Unexpected content for method '%s'", r.Method)
		return &failure{code: http.StatusNotImplemented, text: text}
	}
	params := c.request.Params
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
		return &failure{code: http.StatusBadRequest, text: "unable to decode request parameters"}
	}
	for _, found := range wildcard.FindAllStringSubmatch(r.Pattern, -1) {
		name, value := found[1], r.PathValue(found[1])
		if params.Has(name) && c.get(name) != value {
			return badParameter(name, "duplicate parameter (already defined in URI) with conflicting values!")
		}
		params.Set(name, value)
	}
	return nil
}

// takeFault returns the fault that affects the call; an empty one if there is none.
func (c *call) takeFault() *Fault {
	s := c.s
	for i, f := range s.faults {
		ok, err := path.Match(f.Path, c.request.Path)
		if !ok || err != nil || f.Method != "" && f.Method != c.request.Method {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		return f
	}
	return &Fault{}
}

func (c *call) record(fail *failure) {
	defer c.s.locked()()
	r := c.request
	r.Status, r.At = http.StatusOK, time.Now()
	if fail != nil {
		r.Status, r.Error = fail.code, cmp.Or(fail.text, http.StatusText(fail.code))
	}
	if r.Params.Has("password") {
		r.Params.Set("password", "")
	}
	c.s.requests = append(c.s.requests, r)
}

// failure is an answer with an HTTP status of 400 or more.
type failure struct {
	code     int
	text     string            // first line is the reason phrase
	params   map[string]string // the errors by parameter
	envelope bool              // the body is a JSON envelope; otherwise it is empty
}

func (f *failure) Error() string { return f.text }

// body is empty without an envelope. Before 8.4 (silent) the text was only in the reason phrase.
func (f *failure) body(silent bool) string {
	if !f.envelope {
		return ""
	}
	answer := map[string]any{"data": nil}
	if !silent {
		answer["message"] = f.text + "\n"
	}
	if len(f.params) > 0 {
		answer["errors"] = f.params
	}
	out, _ := json.Marshal(answer) //nolint:errcheck // strings only
	return string(out)
}

// write sends the error with its reason phrase. net/http cannot set one, so write takes the connection over
// where the protocol allows that. A real node closes it after an error, too.
func (f *failure) write(w http.ResponseWriter, silent bool) {
	body := f.body(silent)
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(f.code)
		io.WriteString(w, body) //nolint:errcheck // the client is gone
		return
	}
	defer conn.Close() //nolint:errcheck // the answer is flushed
	reason, _, _ := strings.Cut(f.text, "\n")
	fmt.Fprintf(buffer, "HTTP/1.1 %d %s\r\nServer: pve-api-daemon/3.0\r\nConnection: close\r\n"+
		"Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s", f.code, reason, contentType, len(body), body)
	buffer.Flush() //nolint:errcheck // the client is gone
}

// internal is the answer to an exception in a real node's handler.
func internal(format string, args ...any) *failure {
	return &failure{code: http.StatusInternalServerError, text: fmt.Sprintf(format, args...), envelope: true}
}

// badParameter is a schema violation. Most texts end in a newline on a real node;
// those of raise_param_exc do not.
func badParameter(name, format string, args ...any) *failure {
	return &failure{
		code: http.StatusBadRequest, text: "Parameter verification failed.",
		params: map[string]string{name: fmt.Sprintf(format, args...)}, envelope: true,
	}
}

func forbidden(detail string) *failure {
	return &failure{code: http.StatusForbidden, text: "Permission check failed" + detail, envelope: true}
}

func unauthorized(text string) *failure { return &failure{code: http.StatusUnauthorized, text: text} }

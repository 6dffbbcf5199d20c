package proxmox

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// failure is an answer with an HTTP status of 400 or more.
type failure struct {
	code     int
	text     string            // first line is the reason phrase
	params   map[string]string // the errors by parameter
	envelope bool              // the body is a JSON envelope; otherwise it is empty
}

func (f *failure) Error() string { return f.text }

// body is empty without an envelope. Before 8.4 (silent) the text was only in the
// reason phrase.
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
func (f *failure) write(w http.ResponseWriter, r *http.Request, silent bool) {
	const kind = "application/json;charset=UTF-8"
	body := f.body(silent)
	hijacker, ok := w.(http.Hijacker)
	if !ok || r.ProtoMajor != 1 {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(f.code)
		io.WriteString(w, body) //nolint:errcheck // the client is gone
		return
	}
	conn, buffer, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // the answer is flushed
	reason, _, _ := strings.Cut(f.text, "\n")
	fmt.Fprintf(buffer, "HTTP/1.1 %d %s\r\nServer: pve-api-daemon/3.0\r\nConnection: close\r\n"+
		"Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s", f.code, reason, kind, len(body), body)
	buffer.Flush() //nolint:errcheck // the client is gone
}

// internal is the answer to an exception in a real node's handler.
func internal(format string, args ...any) *failure {
	return &failure{code: http.StatusInternalServerError, text: fmt.Sprintf(format, args...), envelope: true}
}

// badParameter is a schema violation. Most texts end in a newline on a real node;
// those of raise_param_exc do not.
func badParameter(name, text string) *failure {
	return &failure{
		code: http.StatusBadRequest, text: "Parameter verification failed.",
		params: map[string]string{name: text}, envelope: true,
	}
}

func rootOnly() *failure { return badParameter("skiplock", "Only root may use this option.") }

func forbidden(path, privilege string) *failure {
	text := "Permission check failed"
	if path != "" {
		text += fmt.Sprintf(" (%s, %s)", path, privilege)
	}
	return &failure{code: http.StatusForbidden, text: text, envelope: true}
}

func unauthorized(text string) *failure {
	return &failure{code: http.StatusUnauthorized, text: text}
}

// missing is the answer for a guest that does not exist, or not on that node.
func missing(node, kind string, id int) *failure {
	folder := strings.Replace(kind, "qemu", "qemu-server", 1)
	return internal("Configuration file 'nodes/%s/%s/%d.conf' does not exist", node, folder, id)
}

// before reports whether the configured release is older than the given one.
func (c *Config) before(want ...int) bool {
	have := append(strings.Split(c.Version, "."), make([]string, len(want))...)
	for i, w := range want {
		if h, _ := strconv.Atoi(have[i]); h != w { //nolint:errcheck // a part that is no number counts as 0
			return h < w
		}
	}
	return false
}

package proxmox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// failure is an answer with an HTTP status of 400 or more.
type failure struct {
	code     int
	text     string            // first line is the reason phrase
	params   map[string]string // what is wrong with which parameter
	envelope bool              // the body is a JSON envelope; otherwise it is empty
}

func (f *failure) Error() string { return f.text }

func (f *failure) reason() string {
	first, _, _ := strings.Cut(f.text, "\n")
	return first
}

// body is what follows the header: before 8.4 (silent) the text stood in the
// reason phrase only.
func (f *failure) body(silent bool) string {
	if !f.envelope {
		return ""
	}
	answer := map[string]any{"data": nil}
	if !silent {
		answer["message"] = f.text + "\n"
	}
	if len(f.params) > 0 {
		errors := map[string]string{}
		for name, text := range f.params {
			errors[name] = text
		}
		answer["errors"] = errors
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return ""
	}
	return string(out)
}

// internal is what a die in a handler becomes.
func internal(format string, args ...any) *failure {
	return &failure{code: http.StatusInternalServerError, text: fmt.Sprintf(format, args...), envelope: true}
}

// badParameter is a schema violation. Most texts end in a newline on a real
// node; those raised by raise_param_exc do not.
func badParameter(name, text string) *failure {
	return &failure{
		code: http.StatusBadRequest, text: "Parameter verification failed.",
		params: map[string]string{name: text}, envelope: true,
	}
}

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
	folder := "qemu-server"
	if kind == "lxc" {
		folder = "lxc"
	}
	return internal("Configuration file 'nodes/%s/%s/%d.conf' does not exist", node, folder, id)
}

func locked(lock string) error { return fmt.Errorf("VM is locked (%s)", lock) }

// before reports whether the configured release is older than the given one.
func (s *Server) before(want ...int) bool {
	have := strings.Split(s.config.Version, ".")
	for i, w := range want {
		h := 0
		if i < len(have) {
			h, _ = strconv.Atoi(have[i]) //nolint:errcheck // a part that is no number counts as 0
		}
		if h != w {
			return h < w
		}
	}
	return false
}

// Package failure has the answers with which a node of Proxmox VE refuses a call, or fails at it.
package failure

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// ContentType is that of every answer.
const ContentType = "application/json;charset=UTF-8"

// Answer is one with an HTTP status of 400 or more.
type Answer struct {
	Code     int
	Text     string // its first line is the reason phrase
	Envelope bool   // the body is a JSON envelope; otherwise it is empty

	params map[string]string // the errors by parameter
}

func (f *Answer) Error() string { return f.Text }

// body is empty without an envelope. Before 8.4 (silent) the text was only in the reason phrase.
func (f *Answer) body(silent bool) string {
	if !f.Envelope {
		return ""
	}
	answer := map[string]any{"data": nil}
	if !silent {
		answer["message"] = f.Text + "\n"
	}
	if len(f.params) > 0 {
		answer["errors"] = f.params
	}
	out, _ := json.Marshal(answer) //nolint:errcheck // strings only
	return string(out)
}

// Write sends the error with its reason phrase. net/http cannot set one, so Write takes the connection over
// where the protocol allows that. A real node closes it after an error, too.
func (f *Answer) Write(w http.ResponseWriter, silent bool) {
	body := f.body(silent)
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.Header().Set("Content-Type", ContentType)
		w.WriteHeader(f.Code)
		io.WriteString(w, body) //nolint:errcheck // the client is gone
		return
	}
	defer conn.Close() //nolint:errcheck // the answer is flushed
	reason, _, _ := strings.Cut(f.Text, "\n")
	fmt.Fprintf(buffer, "HTTP/1.1 %d %s\r\nServer: pve-api-daemon/3.0\r\nConnection: close\r\n"+
		"Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s", f.Code, reason, ContentType, len(body), body)
	buffer.Flush() //nolint:errcheck // the client is gone
}

// Internal is the answer to an exception in a real node's handler.
func Internal(format string, args ...any) *Answer {
	return &Answer{Code: http.StatusInternalServerError, Text: fmt.Sprintf(format, args...), Envelope: true}
}

// BadParameter is a schema violation. Most texts end in a newline on a real node;
// those of raise_param_exc do not.
func BadParameter(name, format string, args ...any) *Answer {
	return &Answer{
		Code: http.StatusBadRequest, Text: "Parameter verification failed.",
		params: map[string]string{name: fmt.Sprintf(format, args...)}, Envelope: true,
	}
}

// NotImplemented is the answer to a call that a node does not know.
func NotImplemented(method, path string) *Answer {
	text := fmt.Sprintf("Method '%s /%s' not implemented", method, path)
	return &Answer{Code: http.StatusNotImplemented, Text: text, Envelope: true}
}

// Forbidden is the answer to a caller without a privilege; detail names the path and the privilege.
func Forbidden(detail string) *Answer {
	return &Answer{Code: http.StatusForbidden, Text: "Permission check failed" + detail, Envelope: true}
}

// Unauthorized is the answer to a caller without valid credentials.
func Unauthorized(text string) *Answer { return &Answer{Code: http.StatusUnauthorized, Text: text} }

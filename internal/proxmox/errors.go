package proxmox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Error is an answer other than success.
type Error struct {
	Code   int               // HTTP status; 595 and above: a node does not answer
	Text   string            // from the body's message, else from the reason phrase
	Params map[string]string // what is wrong with which parameter
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Code, e.Text)
	for _, name := range slices.Sorted(maps.Keys(e.Params)) {
		text += fmt.Sprintf(" %s: %s", name, strings.TrimSpace(e.Params[name]))
	}
	return text
}

// newError reads the text from wherever this release puts it.
func newError(resp *http.Response, body []byte) *Error {
	_, reason, _ := strings.Cut(resp.Status, " ")
	e := &Error{Code: resp.StatusCode, Text: strings.TrimSpace(reason)}
	var envelope struct {
		Message string         `json:"message"`
		Errors  map[string]any `json:"errors"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return e // an empty body is usual for 401 and 595
	}
	if message := strings.TrimSpace(envelope.Message); message != "" {
		e.Text = message
	}
	for name, text := range envelope.Errors {
		if e.Params == nil {
			e.Params = map[string]string{}
		}
		e.Params[name] = fmt.Sprint(text)
	}
	return e
}

// IsMissing reports whether err says that a guest does not exist, at least not
// on the node that was asked.
func IsMissing(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == http.StatusNotFound || strings.Contains(e.Text, "does not exist"))
}

// IsUnauthorized reports whether err says that the token itself is refused.
func IsUnauthorized(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusUnauthorized
}

// IsForbidden reports whether err says that the token lacks a privilege.
func IsForbidden(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusForbidden
}

// IsTaken reports whether err says that a guest with this id exists already.
func IsTaken(err error) bool {
	var e *Error
	return errors.As(err, &e) && strings.Contains(e.Error(), "already exists")
}

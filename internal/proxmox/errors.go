package proxmox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Error is an answer other than success.
type Error struct {
	Code   int            // HTTP status; 595 and above: a node does not answer
	Text   string         // from the body's message, else from the reason phrase
	Params map[string]any // the problems of parameters, by name
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Code, e.Text)
	for _, name := range sortedKeys(e.Params) {
		text += fmt.Sprintf(" %s: %s", name, strings.TrimSpace(fmt.Sprint(e.Params[name])))
	}
	return text
}

// newError reads the text from wherever this release puts it.
func newError(response *http.Response, body []byte) *Error {
	_, reason, _ := strings.Cut(response.Status, " ")
	e := &Error{Code: response.StatusCode, Text: strings.TrimSpace(reason)}
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
	e.Params = envelope.Errors
	return e
}

// Transient reports whether the same request may succeed later: the node or its proxy cannot answer now, or
// another task holds the guest's lock.
func (e *Error) Transient() bool {
	switch e.Code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	locked := strings.Contains(e.Text, "can't lock file") ||
		strings.Contains(e.Text, "got lock request timeout")
	return e.Code >= 595 || locked
}

// Kind classifies an error for castle.
type Kind int

// The kinds of errors.
const (
	Other        Kind = iota
	Refused           // an answer of any other kind, of an API that is there
	Unauthorized      // the token itself is refused
	Forbidden         // the token lacks a privilege
	Missing           // the guest does not exist, at least not on that node
	Taken             // a guest with this id exists already
	Unreachable       // the node does not answer
)

// KindOf returns the kind of an error. Missing and Taken share their status with other answers, so only
// Proxmox's texts tell them apart.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case !errors.As(err, &e):
		return Other
	case e.Code >= 595:
		return Unreachable
	case e.Code == http.StatusUnauthorized:
		return Unauthorized
	case strings.Contains(e.Error(), "already exists"):
		return Taken
	case e.Code == http.StatusNotFound, strings.Contains(e.Text, "does not exist"):
		return Missing
	case e.Code == http.StatusForbidden:
		return Forbidden
	}
	return Refused
}

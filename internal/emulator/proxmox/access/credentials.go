package access

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
)

// The ticket and its CSRF token never expire and are the same for every login: a
// rehearsal needs only that both are required.
const (
	ticket = "PVE:%s:6A5E0000::c2lnbmF0dXJl"
	csrf   = "6A5E0000:Y3NyZg"
)

// Authenticate returns the caller's user or token id.
func (a *Control) Authenticate(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if token, ok := strings.CutPrefix(header, "PVEAPIToken="); ok {
		return a.authenticateToken(token)
	}
	given, ok := strings.CutPrefix(header, "PVEAuthCookie=")
	if cookie, err := r.Cookie("PVEAuthCookie"); !ok && err == nil {
		given, ok = cookie.Value, true
	}
	switch {
	case !ok:
		return "", failure.Unauthorized("No ticket")
	case a.config.Password == "" || given != fmt.Sprintf(ticket, a.config.User):
		return "", a.refuse("permission denied - invalid PVE ticket")
	case r.Method != http.MethodGet && r.Header.Get("CSRFPreventionToken") != csrf:
		return "", failure.Unauthorized("Permission denied - invalid csrf token")
	}
	return a.config.User, nil
}

func (a *Control) authenticateToken(token string) (string, error) {
	id, secret, _ := strings.Cut(token, "=")
	known, exists := a.tokens[id]
	user, name, _ := strings.Cut(id, "!")
	switch {
	case known.expire > 0 && known.expire < time.Now().Unix():
		return "", a.refuse(fmt.Sprintf("token '%s' access expired", name))
	case equal(secret, known.secret):
		return id, nil
	case exists:
		return "", a.refuse("invalid token value!")
	}
	return "", a.refuse(fmt.Sprintf("no such token '%s' for user '%s'", name, user))
}

// Token is an API token as a call returns it.
func (a *Control) Token(user, name string) (map[string]any, error) {
	token, exists := a.tokens[user+"!"+name]
	switch {
	case !a.users[user]:
		return nil, failure.Internal("no such user ('%s')", user)
	case !exists:
		return nil, failure.Internal("no such token '%s' for user '%s'", name, user)
	}
	return map[string]any{"expire": token.expire, "privsep": option.Number(token.separate)}, nil
}

// equal compares secrets; an empty one is never right.
func equal(given, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// refuse has one text for all cases since 9.1.5, and the given one before.
func (a *Control) refuse(older string) error {
	if a.config.Explains {
		return failure.Unauthorized(older)
	}
	return failure.Unauthorized("Authentication failed!")
}

// Login is the answer with a user's ticket.
func (a *Control) Login(user, password string) (map[string]any, error) {
	if user != a.config.User || !equal(password, a.config.Password) {
		return nil, &failure.Answer{Code: http.StatusUnauthorized, Text: "authentication failure",
			Envelope: true}
	}
	return map[string]any{
		"username": user, "ticket": fmt.Sprintf(ticket, user), "CSRFPreventionToken": csrf,
		"cap": map[string]any{},
	}, nil
}

type apiToken struct {
	secret   string
	separate bool  // has only those privileges of its user that are granted to the token, too
	expire   int64 // seconds since 1970; 0: never
}

package proxmox

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The ticket and its CSRF token never expire and are the same for every login: a
// rehearsal needs only that both are required.
const (
	ticket = "PVE:%s:6A5E0000::c2lnbmF0dXJl"
	csrf   = "6A5E0000:Y3NyZg"
)

// loginPath is the one call that needs no credentials.
const loginPath = "access/ticket"

func version(c *call) (any, error) {
	parts := append(strings.SplitN(c.s.config.Version, ".", 3), "", "")
	release := strings.TrimSuffix(parts[0]+"."+parts[1], ".")
	return map[string]any{"version": c.s.config.Version, "release": release, "repoid": "8f2c4a61"}, nil
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

// authenticate returns the caller's user or token id.
func (a *access) authenticate(r *http.Request, c *Config) (string, error) {
	header := r.Header.Get("Authorization")
	if token, ok := strings.CutPrefix(header, "PVEAPIToken="); ok {
		return a.authenticateToken(token, c)
	}
	given, ok := strings.CutPrefix(header, "PVEAuthCookie=")
	if cookie, err := r.Cookie("PVEAuthCookie"); !ok && err == nil {
		given, ok = cookie.Value, true
	}
	switch {
	case !ok:
		return "", unauthorized("No ticket")
	case c.Password == "" || given != fmt.Sprintf(ticket, c.User):
		return "", c.refuse("permission denied - invalid PVE ticket")
	case r.Method != http.MethodGet && r.Header.Get("CSRFPreventionToken") != csrf:
		return "", unauthorized("Permission denied - invalid csrf token")
	}
	return c.User, nil
}

func (a *access) authenticateToken(token string, c *Config) (string, error) {
	id, secret, _ := strings.Cut(token, "=")
	known, exists := a.tokens[id]
	user, name, _ := strings.Cut(id, "!")
	switch {
	case known.expire > 0 && known.expire < time.Now().Unix():
		return "", c.refuse(fmt.Sprintf("token '%s' access expired", name))
	case equal(secret, known.secret):
		return id, nil
	case exists:
		return "", c.refuse("invalid token value!")
	}
	return "", c.refuse(fmt.Sprintf("no such token '%s' for user '%s'", name, user))
}

// readToken answers as PVE::API2::User's read_token: a token is not the user that it belongs to, so that it
// may not read itself without User.Modify (PVE::RPCEnvironment, userid-param and userid-group).
func readToken(c *call) (any, error) {
	user, name := c.get("userid"), c.get("tokenid")
	if c.caller.id != user && !c.caller.may("/access/groups", "User.Modify") {
		return nil, forbidden("")
	}
	token, exists := c.s.access.tokens[user+"!"+name]
	switch {
	case !c.s.access.users[user]:
		return nil, internal("no such user ('%s')", user)
	case !exists:
		return nil, internal("no such token '%s' for user '%s'", name, user)
	}
	return map[string]any{"expire": token.expire, "privsep": number(token.separate)}, nil
}

// equal compares secrets; an empty one is never right.
func equal(given, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// refuse has one text for all cases since 9.1.5, and the given one before.
func (c *Config) refuse(older string) error {
	if c.before(9, 1, 5) {
		return unauthorized(older)
	}
	return unauthorized("Authentication failed!")
}

func login(c *call) (any, error) {
	user, password := c.s.config.User, c.s.config.Password
	if c.get("username") != user || !equal(c.get("password"), password) {
		return nil, &failure{code: http.StatusUnauthorized, text: "authentication failure", envelope: true}
	}
	return map[string]any{
		"username": user, "ticket": fmt.Sprintf(ticket, user), "CSRFPreventionToken": csrf,
		"cap": map[string]any{},
	}, nil
}

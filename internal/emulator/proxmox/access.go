package proxmox

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
func (c *Config) authenticate(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if token, ok := strings.CutPrefix(header, "PVEAPIToken="); ok {
		return c.authenticateToken(token)
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

func (c *Config) authenticateToken(token string) (string, error) {
	given, _, _ := strings.Cut(token, "=")
	known, _, _ := strings.Cut(c.Token, "=")
	switch {
	case equal(token, c.Token):
		return given, nil
	case given == known:
		return "", c.refuse("invalid token value!")
	}
	user, name, _ := strings.Cut(given, "!")
	return "", c.refuse(fmt.Sprintf("no such token '%s' for user '%s'", name, user))
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

// needed are the privileges that castle needs, by path.
var needed = map[string][]string{
	"/": {"Sys.Audit", "Sys.Modify"},
	"/vms": {
		"VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
		"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
	},
	"/storage": {
		"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit",
	},
	"/sdn": {"SDN.Use"},
}

// permissions lists the caller's privileges by path: those that castle needs, unless SetPrivileges or a pool
// replaces them.
func permissions(c *call) (any, error) {
	granted := c.s.privileges
	if pool := c.s.config.Pool; granted == nil && pool != "" {
		granted = map[string][]string{"/pool/" + pool: needed["/vms"], "/storage": needed["/storage"]}
	} else if granted == nil {
		granted = needed
	}
	all, path, best := map[string]map[string]int{}, c.get("path"), ""
	for on, names := range granted {
		all[on] = map[string]int{}
		for _, name := range names {
			all[on][name] = 1
		}
		below := path == on || strings.HasPrefix(path, strings.TrimSuffix(on, "/")+"/")
		if below && len(on) > len(best) {
			best = on
		}
	}
	if path == "" {
		return all, nil
	}
	all[""] = map[string]int{} // without a match
	return map[string]any{path: all[best]}, nil
}

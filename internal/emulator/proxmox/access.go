package proxmox

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
)

// The ticket and its CSRF token never expire and are the same for every login: a
// rehearsal needs only that both are required.
const (
	ticket = "PVE:%s:6A5E0000::c2lnbmF0dXJl"
	csrf   = "6A5E0000:Y3NyZg"
)

// access authenticates callers and reports their privileges.
type access struct {
	config     *Config
	privileges map[string][]string // by path; nil: what castle needs
}

func (a *access) routes() []route {
	return []route{
		{"GET", "version", a.version},
		{"GET", "access/permissions", a.permissions},
		{"POST", loginPath, a.login},
	}
}

// loginPath is the one call that needs no credentials.
const loginPath = "access/ticket"

func (a *access) version(*call) (any, error) {
	parts := append(strings.SplitN(a.config.Version, ".", 3), "", "")
	release := strings.TrimSuffix(parts[0]+"."+parts[1], ".")
	return map[string]any{"version": a.config.Version, "release": release, "repoid": "8f2c4a61"}, nil
}

// authenticate returns the caller's user or token id.
func (a *access) authenticate(r *http.Request) (string, error) {
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
		return "", unauthorized("No ticket")
	case a.config.Password == "" || given != fmt.Sprintf(ticket, a.config.User):
		return "", unauthorized(a.refusal("permission denied - invalid PVE ticket"))
	case r.Method != http.MethodGet && r.Header.Get("CSRFPreventionToken") != csrf:
		return "", unauthorized("Permission denied - invalid csrf token")
	}
	return a.config.User, nil
}

func (a *access) authenticateToken(token string) (string, error) {
	given, _, _ := strings.Cut(token, "=")
	if a.config.Token != "" && equal(token, a.config.Token) {
		return given, nil
	}
	if known, _, _ := strings.Cut(a.config.Token, "="); given == known {
		return "", unauthorized(a.refusal("invalid token value!"))
	}
	user, name, _ := strings.Cut(given, "!")
	return "", unauthorized(a.refusal(fmt.Sprintf("no such token '%s' for user '%s'", name, user)))
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// refusal is one text for all cases since 9.1.5, and the given one before.
func (a *access) refusal(older string) string {
	if a.config.before(9, 1, 5) {
		return older
	}
	return "Authentication failed!"
}

func (a *access) login(c *call) (any, error) {
	user := a.config.User
	if a.config.Password == "" || c.get("username") != user || !equal(c.get("password"), a.config.Password) {
		return nil, &failure{code: http.StatusUnauthorized, text: "authentication failure", envelope: true}
	}
	return map[string]any{
		"username": user, "ticket": fmt.Sprintf(ticket, user), "CSRFPreventionToken": csrf,
		"cap": map[string]any{},
	}, nil
}

// everything grants the privileges that castle needs, on all paths.
func everything() map[string][]string {
	return map[string][]string{
		"/": {"Sys.Audit", "Sys.Modify"},
		"/vms": {
			"VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.CPU", "VM.Config.Cloudinit",
			"VM.Config.Disk",
			"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
		},
		"/storage": {
			"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit",
		},
		"/sdn": {"SDN.Use"},
	}
}

// permissions lists the caller's privileges by path. Without a pool these are all
// that castle needs.
func (a *access) permissions(c *call) (any, error) {
	granted := a.privileges
	if granted == nil {
		granted = everything()
		if pool := a.config.Pool; pool != "" {
			granted = map[string][]string{"/pool/" + pool: granted["/vms"], "/storage": granted["/storage"]}
		}
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
	switch {
	case path == "":
		return all, nil
	case best == "":
		return map[string]any{path: map[string]int{}}, nil
	}
	return map[string]any{path: all[best]}, nil
}

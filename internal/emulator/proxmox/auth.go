package proxmox

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
)

// ticket and its CSRF token never expire and are the same for every login:
// what a rehearsal needs is that both are asked for.
const (
	ticket = "PVE:%s:6A5E0000::c2lnbmF0dXJl"
	csrf   = "6A5E0000:Y3NyZg"
)

// authenticate says who is calling.
func (s *Server) authenticate(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if token, ok := strings.CutPrefix(header, "PVEAPIToken="); ok {
		return s.authenticateToken(token)
	}
	given, ok := strings.CutPrefix(header, "PVEAuthCookie=")
	if cookie, err := r.Cookie("PVEAuthCookie"); !ok && err == nil {
		given, ok = cookie.Value, true
	}
	if !ok {
		return "", unauthorized("No ticket")
	}
	if s.config.Password == "" || given != fmt.Sprintf(ticket, s.config.User) {
		return "", unauthorized(s.refusal("permission denied - invalid PVE ticket"))
	}
	if r.Method != http.MethodGet && r.Header.Get("CSRFPreventionToken") != csrf {
		return "", unauthorized("Permission denied - invalid csrf token")
	}
	return s.config.User, nil
}

// SetToken makes another token the one that is let in.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config.Token = token
}

func (s *Server) authenticateToken(token string) (string, error) {
	if s.config.Token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(s.config.Token)) == 1 {
		id, _, _ := strings.Cut(token, "=")
		return id, nil
	}
	given, _, _ := strings.Cut(token, "=")
	known, _, _ := strings.Cut(s.config.Token, "=")
	if given == known {
		return "", unauthorized(s.refusal("invalid token value!"))
	}
	user, name, _ := strings.Cut(given, "!")
	return "", unauthorized(s.refusal(fmt.Sprintf("no such token '%s' for user '%s'", name, user)))
}

// refusal is one text for all since 9.1.5, and the given one before.
func (s *Server) refusal(older string) string {
	if s.before(9, 1, 5) {
		return older
	}
	return "Authentication failed!"
}

// login is POST access/ticket, the one call that needs no credentials.
func (s *Server) login(c *call) (any, error) {
	ok := s.config.Password != "" && c.get("username") == s.config.User &&
		subtle.ConstantTimeCompare([]byte(c.get("password")), []byte(s.config.Password)) == 1
	if !ok {
		return nil, &failure{code: http.StatusUnauthorized, text: "authentication failure", envelope: true}
	}
	return map[string]any{
		"username": s.config.User, "ticket": fmt.Sprintf(ticket, s.config.User), "CSRFPreventionToken": csrf, "cap": map[string]any{},
	}, nil
}

// everything is what castle needs, everywhere.
func everything() map[string][]string {
	return map[string][]string{
		"/": {"Sys.Audit", "Sys.Modify"},
		"/vms": {
			"VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
			"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
		},
		"/storage": {"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"},
		"/sdn":     {"SDN.Use"},
	}
}

// SetPrivileges changes what every caller has, by path; what lies below has the
// same unless it is named. The API says it, and nothing else is kept from anybody.
func (s *Server) SetPrivileges(all map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.privileges = all
}

// permissions is what the caller may do, by path. Without a pool that is
// everything castle needs, everywhere.
func (s *Server) permissions(c *call) (any, error) {
	granted := s.privileges
	if granted == nil {
		granted = everything()
		if s.config.Pool != "" {
			granted = map[string][]string{"/pool/" + s.config.Pool: granted["/vms"], "/storage": granted["/storage"]}
		}
	}
	all := map[string]map[string]int{}
	for on, names := range granted {
		all[on] = map[string]int{}
		for _, name := range names {
			all[on][name] = 1
		}
	}
	path := c.get("path")
	if path == "" {
		return all, nil
	}
	best := ""
	for p := range all {
		if (path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/")) && len(p) > len(best) {
			best = p
		}
	}
	if best == "" {
		return map[string]any{path: map[string]int{}}, nil
	}
	return map[string]any{path: all[best]}, nil
}

// sees reports whether the caller has privileges on a guest.
func (s *Server) sees(m *machine) bool {
	return !m.hidden && (s.config.Pool == "" || m.pool == s.config.Pool)
}

// guest finds the guest of a call and checks, in the order of a real node,
// first the privilege and then whether it exists.
func (s *Server) guest(c *call, privilege string) (*machine, error) {
	id := c.vmid()
	m := s.machines[id]
	if (m == nil && s.config.Pool != "") || (m != nil && !s.sees(m)) {
		return nil, forbidden(fmt.Sprintf("/vms/%d", id), privilege)
	}
	if m == nil || m.node != c.vars["node"] || m.kind != "qemu" {
		return nil, missing(c.vars["node"], "qemu", id)
	}
	return m, nil
}

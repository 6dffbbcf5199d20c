package vault

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ServeHTTP answers as Vault's API does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.locked()()
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch {
	case path == "sys/health":
		s.health(w, r)
		return
	case s.state.Sealed || s.state.Uninitialised:
		write(w, http.StatusServiceUnavailable, map[string]any{"errors": []string{"Vault is sealed"}})
		return
	case s.state.Standby && s.state.Active != "":
		w.Header().Set("Location", s.state.Active+r.URL.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	body, refused := s.answer(r, path)
	if refused != nil {
		write(w, refused.code, map[string]any{"errors": refused.errors})
		return
	}
	if body == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	write(w, http.StatusOK, body)
}

// health has the state in its status, too; the query may replace the status codes.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	code := func(usual int, name string) int {
		if n := 0; query.Has(name) {
			if _, err := fmt.Sscan(query.Get(name), &n); err == nil {
				return n
			}
		}
		return usual
	}
	status := http.StatusOK
	switch {
	case s.state.Uninitialised:
		status = code(http.StatusNotImplemented, "uninitcode")
	case s.state.Sealed:
		status = code(http.StatusServiceUnavailable, "sealedcode")
	case s.state.Secondary:
		status = code(472, "drsecondarycode")
	case s.state.Standby && query.Get("standbyok") != "true":
		status = code(http.StatusTooManyRequests, "standbycode")
	}
	mode := "disabled"
	if s.state.Secondary {
		mode = "secondary"
	}
	write(w, status, map[string]any{
		"initialized": !s.state.Uninitialised, "sealed": s.state.Sealed || s.state.Uninitialised,
		"standby": s.state.Standby, "replication_dr_mode": mode, "version": "1.21.4",
		"server_time_utc": time.Now().Add(-s.state.Behind).Unix(),
	})
}

// answer checks the token and its capabilities, then runs the call.
func (s *Server) answer(r *http.Request, path string) (any, *refusal) {
	if path == "auth/approle/login" {
		return s.login(r)
	}
	id := r.Header.Get("X-Vault-Token")
	token, known := s.tokens[id]
	if !known {
		if id == "" {
			return nil, &refusal{http.StatusForbidden, []string{"permission denied"}}
		}
		return nil, denied("invalid token")
	}
	operation := map[string]string{http.MethodGet: "read", http.MethodPost: "update"}[r.Method]
	if !s.policies.allow(token, path, operation) {
		return nil, denied("")
	}
	if path == "auth/token/revoke-self" {
		delete(s.tokens, id)
		return nil, nil
	}
	data, refused := s.data(r, path, token)
	return map[string]any{"data": data}, refused
}

func (s *Server) login(r *http.Request) (any, *refusal) {
	var role struct {
		ID     string `json:"role_id"`
		Secret string `json:"secret_id"`
	}
	policy, known := "", false
	if json.NewDecoder(r.Body).Decode(&role) == nil {
		policy, known = s.roles[role.ID+"/"+role.Secret]
	}
	if !known {
		return nil, &refusal{http.StatusBadRequest, []string{"invalid role or secret ID"}}
	}
	s.logins++
	id := fmt.Sprintf("hvs.role-%s-%d", role.ID, s.logins)
	s.tokens[id] = Token{Policies: []string{policy}, TTL: time.Hour}
	return map[string]any{"auth": map[string]any{"client_token": id}}, nil
}

func (s *Server) data(r *http.Request, path string, token Token) (any, *refusal) {
	notFound := &refusal{http.StatusNotFound, []string{}}
	switch {
	case path == "auth/token/lookup-self":
		policies := token.Policies
		if !slices.Contains(policies, "root") {
			policies = append([]string{"default"}, policies...)
		}
		ttl := int(token.TTL.Seconds())
		return map[string]any{"policies": policies, "ttl": ttl, "renewable": ttl > 0}, nil
	case path == "sys/capabilities-self":
		var request struct{ Paths []string }
		if json.NewDecoder(r.Body).Decode(&request) != nil {
			return nil, &refusal{http.StatusBadRequest, []string{"error parsing JSON"}}
		}
		all := map[string]any{}
		for _, p := range request.Paths {
			all[p] = s.policies.capabilities(token, p)
		}
		return all, nil
	case path == "sys/auth":
		return s.list("auth/", true), nil
	case path == "sys/mounts":
		return s.list("auth/", false), nil
	}
	if mount, ok := strings.CutPrefix(path, "sys/internal/ui/mounts/"); ok {
		m, exists := s.mounts[mount+"/"]
		if !exists || !s.policies.reach(token, mount+"/") {
			text := fmt.Sprintf("preflight capability check returned 403, please ensure client's policies "+
				"grant access to path %q", mount+"/")
			return nil, &refusal{http.StatusForbidden, []string{text}}
		}
		return map[string]any{"type": m.Type, "options": m.Options, "path": mount + "/"}, nil
	}
	for _, how := range []string{"revoke-prefix/", "revoke-force/"} {
		if prefix, ok := strings.CutPrefix(path, "sys/leases/"+how); ok {
			return s.revoke(token, path, prefix+"/", how == "revoke-force/")
		}
	}
	mount, name, found := strings.Cut(path, "/data/")
	if secret, exists := s.secrets[mount+"/"+name]; found && exists {
		return map[string]any{"data": secret, "metadata": map[string]any{"version": 1}}, nil
	}
	return nil, notFound
}

// revoke ends all leases below a path; force includes those that cannot be revoked.
func (s *Server) revoke(token Token, path, prefix string, force bool) (any, *refusal) {
	if !s.policies.allow(token, path, "sudo") {
		return nil, denied("")
	}
	for _, id := range slices.Sorted(maps.Keys(s.leases)) {
		switch deletable := s.leases[id]; {
		case !strings.HasPrefix(id, prefix):
		case deletable || force:
			delete(s.leases, id)
		default:
			text := fmt.Sprintf("failed to revoke %q (1 / 1): failed to revoke entry: "+
				"resp: (*logical.Response)(nil) err: connection refused", id)
			return nil, &refusal{http.StatusBadRequest, []string{text}}
		}
	}
	return nil, nil
}

// list lists the mounts below the prefix, or all others, by path without it.
func (s *Server) list(prefix string, below bool) map[string]any {
	all := map[string]any{}
	for path, m := range s.mounts {
		name, is := strings.CutPrefix(path, prefix)
		if is == below {
			all[name] = map[string]any{"type": m.Type, "accessor": m.Accessor, "options": m.Options}
		}
	}
	return all
}

// refusal is the answer to a call that failed.
type refusal struct {
	code   int
	errors []string
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

func denied(more string) *refusal {
	text := "1 error occurred:\n\t* permission denied\n\n"
	if more != "" {
		text = fmt.Sprintf("2 errors occurred:\n\t* permission denied\n\t* %s\n\n", more)
	}
	return &refusal{http.StatusForbidden, []string{text}}
}

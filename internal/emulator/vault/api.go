package vault

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ServeHTTP answers as Vault's API does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.locked()()
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	code, body := s.answer(r, path)
	if code == http.StatusTemporaryRedirect {
		w.Header().Set("Location", s.state.Active+r.URL.RequestURI())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body) // the client is gone
	}
}

// health has the state in its status, too; the query may replace the status codes.
func (s *Server) health(query url.Values) (code int, body any) {
	code, mode := http.StatusOK, "disabled"
	if s.state.Secondary {
		mode = "secondary"
	}
	for _, state := range []struct {
		is   bool
		code int
		name string
	}{
		{s.state.Uninitialised, http.StatusNotImplemented, "uninitcode"},
		{s.state.Sealed, http.StatusServiceUnavailable, "sealedcode"},
		{s.state.Secondary, 472, "drsecondarycode"},
		{s.state.Standby && query.Get("standbyok") != "true", http.StatusTooManyRequests, "standbycode"},
	} {
		if state.is {
			code = state.code
			if n, err := strconv.Atoi(query.Get(state.name)); err == nil {
				code = n
			}
			break
		}
	}
	return code, map[string]any{
		"initialized": !s.state.Uninitialised, "sealed": s.state.Sealed || s.state.Uninitialised,
		"standby": s.state.Standby, "replication_dr_mode": mode, "version": "1.21.4",
		"server_time_utc": time.Now().Add(-s.state.Behind).Unix(),
	}
}

// answer checks the node's state, the token and its capabilities, then runs the call. It returns a status and
// a body, nil for none.
func (s *Server) answer(r *http.Request, path string) (code int, body any) {
	id := r.Header.Get("X-Vault-Token")
	token, known := s.tokens[id]
	operation := map[string]string{http.MethodGet: "read", http.MethodPost: "update"}[r.Method]
	switch {
	case path == "sys/health":
		return s.health(r.URL.Query())
	case s.state.Sealed || s.state.Uninitialised:
		return refuse(http.StatusServiceUnavailable, "Vault is sealed")
	case s.state.Standby && s.state.Active != "":
		return http.StatusTemporaryRedirect, nil
	case path == "auth/approle/login":
		return s.login(r)
	case id == "":
		return refuse(http.StatusForbidden, "permission denied")
	case !known:
		return refuse(http.StatusForbidden,
			"2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n")
	case !s.policies.allow(token, path, operation):
		return denied()
	case path == "auth/token/revoke-self":
		delete(s.tokens, id)
		return http.StatusNoContent, nil
	}
	return s.call(r, path, token)
}

// call runs a call of a token that may make it.
func (s *Server) call(r *http.Request, path string, token Token) (code int, body any) {
	switch path {
	case "auth/token/lookup-self":
		policies := token.Policies
		if !slices.Contains(policies, "root") {
			policies = append([]string{"default"}, policies...)
		}
		ttl := int(token.TTL.Seconds())
		return data(map[string]any{"policies": policies, "ttl": ttl, "creation_ttl": ttl,
			"renewable": ttl > 0})
	case "sys/capabilities-self":
		var request struct{ Paths []string }
		if json.NewDecoder(r.Body).Decode(&request) != nil {
			return refuse(http.StatusBadRequest, "error parsing JSON")
		}
		all := map[string]any{}
		for _, p := range request.Paths {
			all[p] = s.policies.capabilities(token, p)
		}
		return data(all)
	case "sys/auth":
		return data(s.list("auth/", true))
	case "sys/mounts":
		return data(s.list("auth/", false))
	}
	if mount, ok := strings.CutPrefix(path+"/", "sys/internal/ui/mounts/"); ok {
		m, exists := s.mounts[mount]
		if !exists || !s.policies.reach(token, mount) {
			return refuse(http.StatusForbidden, "preflight capability check returned 403, please ensure "+
				"client's policies grant access to path %q", mount)
		}
		return data(map[string]any{"type": m.Type, "options": m.Options, "path": mount})
	}
	if prefix, ok := strings.CutPrefix(path+"/", "sys/leases/revoke-prefix/"); ok {
		return s.revoke(token, path, prefix, false)
	}
	if prefix, ok := strings.CutPrefix(path+"/", "sys/leases/revoke-force/"); ok {
		return s.revoke(token, path, prefix, true)
	}
	mount, name, found := strings.Cut(path, "/data/")
	if secret, exists := s.secrets[mount+"/"+name]; found && exists {
		return data(map[string]any{"data": secret, "metadata": map[string]any{"version": 1}})
	}
	return http.StatusNotFound, map[string]any{"errors": []string{}}
}

func data(value any) (code int, body any) { return http.StatusOK, map[string]any{"data": value} }

func refuse(code int, format string, args ...any) (_ int, body any) {
	return code, map[string]any{"errors": []string{fmt.Sprintf(format, args...)}}
}

func denied() (code int, body any) {
	return refuse(http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
}

func (s *Server) login(r *http.Request) (code int, body any) {
	var role struct {
		ID     string `json:"role_id"`
		Secret string `json:"secret_id"`
	}
	err := json.NewDecoder(r.Body).Decode(&role)
	policy, known := s.roles[role.ID+"/"+role.Secret]
	if err != nil || !known {
		return refuse(http.StatusBadRequest, "invalid role or secret ID")
	}
	s.logins++
	id := fmt.Sprintf("hvs.role-%s-%d", role.ID, s.logins)
	s.tokens[id] = Token{Policies: []string{policy}, TTL: time.Hour}
	return http.StatusOK, map[string]any{"auth": map[string]any{"client_token": id}}
}

// revoke ends all leases below a path; force includes those that cannot be revoked.
func (s *Server) revoke(token Token, path, prefix string, force bool) (code int, body any) {
	if !s.policies.allow(token, path, "sudo") {
		return denied()
	}
	for _, id := range slices.Sorted(maps.Keys(s.leases)) {
		if !strings.HasPrefix(id, prefix) {
			continue
		}
		if deletable := s.leases[id]; !deletable && !force {
			return refuse(http.StatusBadRequest, "failed to revoke %q (1 / 1): failed to revoke entry: "+
				"resp: (*logical.Response)(nil) err: connection refused", id)
		}
		delete(s.leases, id)
	}
	return data(nil)
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

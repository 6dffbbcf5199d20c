// Package vault is a Vault that says what a real one would, as far as castle asks
// before it changes anything: its health, who a token is and what it may do, what
// is mounted, and one version of each secret. A test of the lab asks a real Vault
// the same questions and compares.
package vault

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Server is a Vault: unsealed, active, and with nothing in it but the policy default.
type Server struct {
	mu       sync.Mutex
	state    State
	tokens   map[string]Token
	policies map[string][]rule
	mounts   map[string]Mount // by path, as in "auth/jwt-blue/" or "secret/"
	secrets  map[string]map[string]string
	leases   map[string]bool   // by id, such as "database-blue/creds/grafana/1": whether what was given out can be deleted
	roles    map[string]string // AppRole: a role's id and secret, and the policy that it gives
	logins   int               // so far; each gives a token of its own
}

// State is what a node says of itself.
type State struct {
	Uninitialised, Sealed, Standby, Secondary bool
	// Active is where a standby sends whoever asks, if it cannot forward.
	Active string
	// Behind is how far its clock is behind.
	Behind time.Duration
}

// Token is who asks.
type Token struct {
	Policies []string
	TTL      time.Duration // 0: for ever
}

// Mount is an engine or a way to log in.
type Mount struct {
	Type     string
	Accessor string
	Options  map[string]string
}

// New makes a Vault.
func New() *Server {
	s := &Server{tokens: map[string]Token{}, policies: map[string][]rule{}, mounts: map[string]Mount{}, secrets: map[string]map[string]string{}, roles: map[string]string{}, leases: map[string]bool{}}
	s.Policy("default", `
path "auth/token/lookup-self" { capabilities = ["read"] }
path "auth/token/revoke-self" { capabilities = ["update"] }
path "sys/capabilities-self" { capabilities = ["update"] }
path "sys/internal/ui/mounts/*" { capabilities = ["read"] }
`)
	return s
}

// Set says what the node is from now on.
func (s *Server) Set(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// Token lets somebody in.
func (s *Server) Token(id string, t Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[id] = t
}

// Revoke lets somebody in no more.
func (s *Server) Revoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, id)
}

// Tokens lists who is let in, by id.
func (s *Server) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.tokens))
}

// Role lets an AppRole in, with one policy.
func (s *Server) Role(id, secret, policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roles[id+"/"+secret] = policy
}

var rules = regexp.MustCompile(`path "([^"]+)" \{\s*capabilities = \[([^\]]*)\]`)

type rule struct {
	path         string
	capabilities []string
}

// Policy takes a policy as it is written.
func (s *Server) Policy(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[name] = nil
	for _, m := range rules.FindAllStringSubmatch(text, -1) {
		may := strings.FieldsFunc(m[2], func(r rune) bool { return strings.ContainsRune(`", `, r) })
		s.policies[name] = append(s.policies[name], rule{m[1], may})
	}
}

// Mount mounts something at a path such as "secret" or "auth/jwt-blue".
func (s *Server) Mount(path string, m Mount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Accessor == "" {
		m.Accessor = m.Type + "_0a1b2c3d"
	}
	s.mounts[path+"/"] = m
}

// Lease gives something out. What cannot be deleted cannot be revoked.
func (s *Server) Lease(id string, deletable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[id] = deletable
}

// Leases lists what was given out and neither revoked nor forgotten.
func (s *Server) Leases() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.leases))
}

// Put writes a secret of a KV engine, version 2.
func (s *Server) Put(mount, path string, values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets[mount+"/"+path] = maps.Clone(values)
}

// covers is how much of path a rule is for: -1 if it is not.
func (r rule) covers(path string) int {
	want, glob := strings.CutSuffix(r.path, "*")
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(want), `\+`, `[^/]+`)
	if !glob {
		pattern += "$"
	}
	if !regexp.MustCompile(pattern).MatchString(path) {
		return -1
	}
	if !glob {
		return len(path) + 1
	}
	return len(want)
}

// may lists what a token may do at a path: that of the closest rule of each policy.
func (s *Server) may(t Token, path string) []string {
	if slices.Contains(t.Policies, "root") {
		return []string{"root"}
	}
	best, may := -1, []string{"deny"}
	for _, p := range append([]string{"default"}, t.Policies...) {
		for _, r := range s.policies[p] {
			if n := r.covers(path); n > best {
				best, may = n, r.capabilities
			}
		}
	}
	return may
}

// refusal is an answer that is no success.
type refusal struct {
	code int
	said []string
}

func (s *Server) write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // whoever asked is gone
}

func denied(more string) *refusal {
	if more == "" {
		return &refusal{http.StatusForbidden, []string{"1 error occurred:\n\t* permission denied\n\n"}}
	}
	return &refusal{http.StatusForbidden, []string{fmt.Sprintf("2 errors occurred:\n\t* permission denied\n\t* %s\n\n", more)}}
}

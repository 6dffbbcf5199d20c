// Package vault emulates the parts of a Vault server that castle reads before a change: health, a token and
// its capabilities, the mounts, leases, and one version of each secret. A test of the lab compares its
// answers with those of a real Vault.
package vault

import (
	"cmp"
	"maps"
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
	policies policies
	mounts   map[string]Mount // by path, as in "auth/jwt-blue/" or "secret/"
	secrets  map[string]map[string]string
	leases   map[string]bool   // by id, such as "database-blue/creds/grafana/1": whether it can be revoked
	roles    map[string]string // AppRole: "id/secret" to the policy of its tokens
	logins   int               // so far; each creates a token
}

// State is the state that a node reports.
type State struct {
	Uninitialised, Sealed, Standby, Secondary bool
	// Active is the address to which a standby redirects, if it cannot forward.
	Active string
	// Behind is how far its clock is behind.
	Behind time.Duration
}

// Token is a client's token.
type Token struct {
	Policies []string
	TTL      time.Duration // 0: unlimited
}

// Mount is a secrets engine or an auth method.
type Mount struct {
	Type     string
	Accessor string
	Options  map[string]string
}

// New creates a Vault.
func New() *Server {
	s := &Server{
		tokens: map[string]Token{}, policies: policies{}, mounts: map[string]Mount{},
		secrets: map[string]map[string]string{}, roles: map[string]string{}, leases: map[string]bool{},
	}
	s.Policy("default", `
path "auth/token/lookup-self" { capabilities = ["read"] }
path "auth/token/revoke-self" { capabilities = ["update"] }
path "sys/capabilities-self" { capabilities = ["update"] }
path "sys/internal/ui/mounts/*" { capabilities = ["read"] }
`)
	return s
}

func (s *Server) locked() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Set changes the node's state.
func (s *Server) Set(state State) {
	defer s.locked()()
	s.state = state
}

// Token adds a token.
func (s *Server) Token(id string, t Token) {
	defer s.locked()()
	s.tokens[id] = t
}

// Revoke deletes a token.
func (s *Server) Revoke(id string) {
	defer s.locked()()
	delete(s.tokens, id)
}

// Tokens lists the ids of the valid tokens.
func (s *Server) Tokens() []string {
	defer s.locked()()
	return slices.Sorted(maps.Keys(s.tokens))
}

// Role adds an AppRole with one policy.
func (s *Server) Role(id, secret, policy string) {
	defer s.locked()()
	s.roles[id+"/"+secret] = policy
}

var rules = regexp.MustCompile(`path "([^"]+)" \{\s*capabilities = \[([^\]]*)\]`)

type rule struct {
	pattern      *regexp.Regexp
	path         string
	capabilities []string
}

// pathPattern matches the paths of a rule: + is a segment, a final * is any suffix.
func pathPattern(path string) *regexp.Regexp {
	want, glob := strings.CutSuffix(path, "*")
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(want), `\+`, `[^/]+`)
	if !glob {
		pattern += "$"
	}
	return regexp.MustCompile(pattern)
}

// Policy adds a policy in HCL.
func (s *Server) Policy(name, text string) {
	defer s.locked()()
	s.policies[name] = nil
	for _, m := range rules.FindAllStringSubmatch(text, -1) {
		capabilities := strings.FieldsFunc(m[2], func(r rune) bool { return strings.ContainsRune(`", `, r) })
		s.policies[name] = append(s.policies[name], rule{pathPattern(m[1]), m[1], capabilities})
	}
}

// Mount adds a mount at a path such as "secret" or "auth/jwt-blue".
func (s *Server) Mount(path string, m Mount) {
	defer s.locked()()
	m.Accessor = cmp.Or(m.Accessor, m.Type+"_0a1b2c3d")
	s.mounts[path+"/"] = m
}

// Lease adds a lease. One that is not deletable cannot be revoked without force.
func (s *Server) Lease(id string, deletable bool) {
	defer s.locked()()
	s.leases[id] = deletable
}

// Leases lists the ids of the leases that were not revoked.
func (s *Server) Leases() []string {
	defer s.locked()()
	return slices.Sorted(maps.Keys(s.leases))
}

// SetSecret writes a secret of a KV engine, version 2.
func (s *Server) SetSecret(mount, path string, values map[string]string) {
	defer s.locked()()
	s.secrets[mount+"/"+path] = maps.Clone(values)
}

// policies are the rules by policy.
type policies map[string][]rule

// covers is how much of path the rule matches: -1 if it does not.
func (r rule) covers(path string) int {
	want, glob := strings.CutSuffix(r.path, "*")
	switch {
	case !r.pattern.MatchString(path):
		return -1
	case glob:
		return len(want)
	}
	return len(path) + 1
}

// capabilities lists a token's capabilities at a path: the closest rule decides.
func (p policies) capabilities(t Token, path string) []string {
	if slices.Contains(t.Policies, "root") {
		return []string{"root"}
	}
	best, capabilities := -1, []string{"deny"}
	for _, name := range append([]string{"default"}, t.Policies...) {
		for _, r := range p[name] {
			if n := r.covers(path); n > best {
				best, capabilities = n, r.capabilities
			}
		}
	}
	return capabilities
}

func (p policies) allow(t Token, path, capability string) bool {
	has := p.capabilities(t, path)
	return slices.Contains(has, capability) || slices.Contains(has, "root")
}

// reach reports whether a token has a policy for a path below a mount.
func (p policies) reach(t Token, mount string) bool {
	below := func(r rule) bool { return strings.HasPrefix(r.path, mount) }
	return slices.ContainsFunc(t.Policies, func(name string) bool {
		return name == "root" || slices.ContainsFunc(p[name], below)
	})
}

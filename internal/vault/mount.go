package vault

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// mount is what a stage mounts, and what else it writes.
type mount struct {
	Server
	environ  []string
	login    bool   // a way to log in; else an engine
	path     string // jwt-blue
	resource string // vault_jwt_auth_backend.cluster
	setting  string // vault_jwt_path
	writes   []string
	leases   bool  // it gives out what ends: users of a database
	kv       Place // where it keeps passwords; no mount: nowhere
	policy   string
}

// mounts refuses to mount where somebody else's mount is, and a token that would
// be refused half-way.
//
// Nothing on a mount says whose it is, so it is the stage's own only if the state
// knows it, by the accessor that no other mount ever gets, or if a run was making
// it when it was cut short.
func mounts() gate.PreflightType {
	return gate.PreflightType{
		Name:    PreflightMount,
		Summary: "A path in a Vault is free or the stage's own, and the token may write there all that the stage writes",
		Attributes: asking(map[string]gate.Attribute{
			"kind":     {Type: cty.String, Required: true, Valid: validKind, Help: "What is mounted: \"auth\", a way to log in, or \"secrets\", an engine."},
			"path":     {Type: cty.String, Required: true, Help: "Where, such as \"jwt-blue\"."},
			"resource": {Type: cty.String, Required: true, Help: "The resource that is the mount, such as \"vault_mount.database\"."},
			"setting":  {Type: cty.String, Required: true, Help: "The variable that names another path."},
			"writes":   {Type: cty.List(cty.String), Help: "What else the stage creates, reads, updates and deletes, as Vault's API calls it: \"sys/policies/acl/castle-blue\"."},
			"leases":   {Type: cty.Bool, Help: "Whether the engine gives out what ends, such as a database's users: a destroy has that revoked before."},
			"kv_mount": {Type: cty.String, Help: "The KV engine, version 2, in which the stage writes a secret."},
			"kv_path":  {Type: cty.String, Help: "That secret's path below the mount."},
			"policy":   {Type: cty.String, Required: true, Help: "Where the policy is that a token needs, for who lacks it."},
		}),
		New: func(name string, target gate.Target, values gate.Values) (gate.Preflight, error) {
			m := mount{
				Server: ServerOf(values), environ: target.Environ, login: values.String("kind") == "auth", path: strings.Trim(values.String("path"), "/"),
				resource: values.String("resource"), setting: values.String("setting"), policy: values.String("policy"),
				leases: values.Bool("leases"),
			}
			m.kv = Place{Server: m.Server, Mount: values.String("kv_mount"), Path: values.String("kv_path")}
			if err := values.Decode("writes", &m.writes); err != nil {
				return gate.Preflight{}, fmt.Errorf("%s: %w", name, err)
			}
			p := gate.Preflight{Name: name, Inspect: m.inspect}
			if m.leases {
				p.Revoke = m.revoke
			}
			return p, nil
		},
	}
}

func validKind(v cty.Value) error {
	if kind := v.AsString(); kind != "auth" && kind != "secrets" {
		return fmt.Errorf("%q is neither \"auth\" nor \"secrets\"", kind)
	}
	return nil
}

// inspect says that what the state knows is unseen where the Vault cannot be
// asked: a destroy would fail half-way.
func (m mount) inspect(ctx context.Context, known []gate.Known, _ func(string)) (gate.Findings, error) {
	var own *gate.Known
	if i := slices.IndexFunc(known, func(k gate.Known) bool { return k.Address == m.resource }); i >= 0 {
		own = &known[i]
	}
	found, err := m.look(ctx, own)
	unfit, err := told(ctx, err)
	found.Unfit = unfit
	if own != nil && err == nil {
		found.Unseen = unfit
		found.Proof = []event.Thing{m.proof(found)}
	}
	return found, err
}

// proof says whether what the state knew is gone.
func (m mount) proof(found gate.Findings) event.Thing {
	t := event.Thing{Kind: m.kind(), ID: m.path, Where: m.Address}
	switch {
	case len(found.Unseen) > 0:
		t.Reason = "nobody can tell: " + found.Unseen[0].Why
	case len(found.Present) > 0:
		t.Reason, t.Way = "still there", m.end()
	default:
		t.Gone = true
	}
	return t
}

// mounted is something as Vault lists it.
type mounted struct {
	Type     string `json:"type"`
	Accessor string `json:"accessor"`
}

func (m mount) look(ctx context.Context, own *gate.Known) (found gate.Findings, err error) {
	c, _, err := m.logIn(ctx, m.environ)
	if err != nil {
		return found, err
	}
	defer c.leave(ctx)
	if err := m.may(ctx, c, m.wanted(), m.grant()); err != nil {
		return found, err
	}
	if m.kv.Mount != "" {
		if err := m.kv.versioned(ctx, c); err != nil {
			return found, err
		}
	}
	var answer struct {
		Data map[string]mounted `json:"data"`
	}
	if err := c.call(ctx, http.MethodGet, m.list(), nil, &answer); err != nil {
		return found, m.trouble("it does not say what is mounted: "+err.Error(), "look at the Vault")
	}
	there, taken := answer.Data[m.path+"/"]
	switch {
	case taken && m.owns(own, there):
		found.Present = []string{m.name(m.path)}
	case taken:
		found.Foreign = []gate.Foreign{m.foreign(own, there)}
	default:
		if other := m.beside(answer.Data); other != "" {
			found.Foreign = []gate.Foreign{{
				What: m.name(other), Why: "no path of a mount may begin with another's, and the stage's is " + m.path, Ways: []string{m.another()},
			}}
		}
	}
	return found, nil
}

// wanted is what the token has to be allowed, by path: Vault asks for sudo where
// a way to log in is made or taken away.
func (m mount) wanted() map[string][]string {
	all := map[string][]string{m.list(): {"read"}}
	if m.login {
		all["sys/auth/"+m.path] = []string{"create", "update", "delete", "sudo"}
	} else {
		all["sys/mounts/"+m.path] = []string{"create", "update", "delete"}
	}
	if m.leases {
		for _, how := range []string{revokePrefix, revokeForce} {
			all[how+m.path] = []string{"update", "sudo"}
		}
	}
	for _, path := range m.writes {
		all[path] = []string{"create", "read", "update", "delete"}
	}
	if m.kv.Mount != "" {
		all[m.kv.Mount+"/data/"+m.kv.Path] = []string{"create", "read", "update"}
		all[m.kv.Mount+"/metadata/"+m.kv.Path] = []string{"read", "delete"}
	}
	return all
}

func (m mount) list() string {
	if m.login {
		return "sys/auth"
	}
	return "sys/mounts"
}

func (m mount) kind() string {
	if m.login {
		return "auth method"
	}
	return "engine"
}

func (m mount) name(path string) string {
	return fmt.Sprintf("%s %s in the Vault at %s", m.kind(), strings.Trim(path, "/"), m.Address)
}

// end is the command that ends the mount.
func (m mount) end() string {
	if m.login {
		return "vault auth disable " + m.path
	}
	return "vault secrets disable " + m.path
}

// owns reports whether a mount is what the state knows; what a run was making, or a
// destroy is to prove gone, is known by its address alone.
func (m mount) owns(own *gate.Known, there mounted) bool {
	if own == nil {
		return false
	}
	accessor, path := own.Attributes["accessor"], own.Attributes["path"]
	same := accessor == nil || accessor == "" || accessor == there.Accessor
	return same && (path == nil || path == m.path)
}

func (m mount) foreign(own *gate.Known, there mounted) gate.Foreign {
	f := gate.Foreign{What: fmt.Sprintf("%s, of type %s", m.name(m.path), there.Type)}
	f.Ways = []string{m.another(), "end it, if nobody needs it: " + m.end()}
	if own != nil && own.Attributes["path"] == m.path {
		f.Why = "it is not the one that the state knows: that one was ended, and this one mounted since"
		f.Mistaken, f.Forget = m.resource, m.resource
		return f
	}
	f.Why = "the stage's state knows none there: it is somebody else's, or the state was lost"
	if own == nil {
		f.Ways = append([]string{"if the state was lost, bring it back: castle state restore"}, f.Ways...)
		f.Import = &gate.Import{Address: m.resource, ID: m.path, What: m.name(m.path)}
	}
	return f
}

// grant is the way out where the token lacks something.
func (m mount) grant() string { return "give it the policy of the stage, too: " + m.policy }

func (m mount) another() string { return "give the stage another path: " + m.setting }

// beside finds a mount whose path begins with the wanted one, or the other way
// round: Vault has no two such.
func (m mount) beside(all map[string]mounted) string {
	for path := range all {
		if strings.HasPrefix(path, m.path+"/") || strings.HasPrefix(m.path+"/", path) {
			return path
		}
	}
	return ""
}

package vault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/httpjson"
)

// The preflights check whether secrets can be read, and whether a stage can create and fill a mount.
const (
	Preflight      = "vault_secrets"
	PreflightMount = "vault_mount"
)

// PreflightTypes lists the preflights that ask a Vault.
func PreflightTypes() []gate.PreflightType { return []gate.PreflightType{secrets(), mounts()} }

// attributes adds to more those that name the Vault and its credentials.
func attributes(more map[string]gate.Attribute) map[string]gate.Attribute {
	maps.Copy(more, map[string]gate.Attribute{
		"address": required(`Vault's address, such as "https://vault.example.org:8200".`, validAddress),
		"ca_file": {Type: cty.String,
			Help: "A certificate to trust instead of the system's: PEM text or a file's path."},
		"role_mount":  {Type: cty.String, Help: "Where AppRole is mounted."},
		"role_id":     {Type: cty.String, Help: "An AppRole's id. Without it VAULT_TOKEN is used."},
		"role_secret": {Type: cty.String, Help: "The AppRole's secret id."},
	})
	return more
}

func required(help string, valid func(cty.Value) error) gate.Attribute {
	return gate.Attribute{Type: cty.String, Required: true, Valid: valid, Help: help}
}

func secrets() gate.PreflightType {
	return gate.PreflightType{
		Name:    Preflight,
		Summary: "A Vault is unsealed, and the environment's token, not root's, may read a secret there",
		Attributes: attributes(map[string]gate.Attribute{
			"mount": required("Where the KV engine is mounted.", nil),
			"path":  required("The secret's path below the mount.", nil),
		}),
		New: func(name string, target gate.Target, values gate.Values) (gate.Preflight, error) {
			p := PlaceOf(values)
			inspect := func(ctx context.Context, _ []gate.Known, _ func(string)) (gate.Inspection, error) {
				unfit, err := unfit(ctx, p.Usable(ctx, target.Environ))
				return gate.Inspection{Unusable: unfit}, err
			}
			return gate.Preflight{Name: name, Inspect: inspect}, nil
		},
	}
}

func mounts() gate.PreflightType {
	return gate.PreflightType{
		Name: PreflightMount,
		Summary: "A path in a Vault is free or the stage's own, and the token may write what the " +
			"stage writes",
		Attributes: attributes(map[string]gate.Attribute{
			"kind":     required(`What is mounted: an "auth" method or a "secrets" engine.`, validKind),
			"path":     required(`Where, such as "jwt-blue".`, nil),
			"resource": required(`The resource that is the mount, such as "vault_mount.database".`, nil),
			"setting":  required("The variable that names another path.", nil),
			"writes": {Type: cty.List(cty.String),
				Help: "What else the stage creates, reads, updates and deletes, " +
					`as Vault's API calls it: "sys/policies/acl/castle-blue".`},
			"leases": {Type: cty.Bool,
				Help: "Whether the engine creates leases, such as a database's users: " +
					"a destroy revokes them first."},
			"kv_mount": {Type: cty.String,
				Help: "The KV engine, version 2, in which the stage writes a secret."},
			"kv_path": {Type: cty.String, Help: "That secret's path below the mount."},
			"policy":  required("Where the policy is that the token needs.", nil),
		}),
		New: func(name string, target gate.Target, v gate.Values) (gate.Preflight, error) {
			m := mount{
				server: ServerOf(v), environ: target.Environ, kind: mountKinds[v.String("kind")],
				path: strings.Trim(v.String("path"), "/"), resource: v.String("resource"),
				setting: v.String("setting"), policy: v.String("policy"), leases: v.Bool("leases"),
			}
			m.kv = Place{Server: m.server, Mount: v.String("kv_mount"), Path: v.String("kv_path")}
			if err := v.Decode("writes", &m.writes); err != nil {
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

// unfit makes a finding of a problem; any other error stays one.
func unfit(ctx context.Context, err error) ([]gate.Foreign, error) {
	if p := (*Problem)(nil); errors.As(err, &p) && ctx.Err() == nil {
		return []gate.Foreign{{What: p.Object, Why: p.Reason, Fixes: p.Fixes}}, nil
	}
	return nil, err
}

// PlaceOf is the place that a preflight's arguments name.
func PlaceOf(values gate.Values) Place {
	return Place{Server: ServerOf(values), Mount: values.String("mount"), Path: values.String("path")}
}

// ServerOf is the Vault that a preflight's arguments name, with its credentials.
func ServerOf(values gate.Values) Server {
	s := Server{Address: values.String("address"), CAFile: values.String("ca_file")}
	if id := values.String("role_id"); id != "" {
		s.Role = Role{Mount: values.String("role_mount"), ID: id, Secret: values.String("role_secret")}
	}
	return s
}

func validAddress(v cty.Value) error {
	if u, err := url.Parse(v.AsString()); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not an address such as \"https://vault.example.org:8200\"", v.AsString())
	}
	return nil
}

func validKind(v cty.Value) error {
	if _, ok := mountKinds[v.AsString()]; !ok {
		return fmt.Errorf("%q is neither \"auth\" nor \"secrets\"", v.AsString())
	}
	return nil
}

// mount is an auth method or an engine of a stage, with the stage's other objects in Vault. A mount carries
// no owner. It is the stage's own only if the state has its accessor, which is unique, or if an interrupted
// run was creating it.
type mount struct {
	server   Server
	environ  []string
	kind     mountKind
	path     string // jwt-blue
	resource string // vault_jwt_auth_backend.cluster
	setting  string // vault_jwt_path
	writes   []string
	leases   bool  // it creates leases: users of a database
	kv       Place // where it keeps passwords; no mount: nowhere
	policy   string
}

// mountKind is how Vault calls a kind of mount. It requires sudo to enable and disable an auth method.
type mountKind struct {
	name, list, disable string
	capabilities        []string
}

var manage = []string{"create", "update", "delete"}

var mountKinds = map[string]mountKind{
	"auth":    {"auth method", "sys/auth", "vault auth disable ", append(slices.Clone(manage), "sudo")},
	"secrets": {"engine", "sys/mounts", "vault secrets disable ", manage},
}

// inspect also reports the state's mount as unverified if the Vault is unusable: a destroy would fail.
func (m mount) inspect(ctx context.Context, known []gate.Known, _ func(string)) (gate.Inspection, error) {
	var own *gate.Known
	if i := m.in(known); i >= 0 {
		own = &known[i]
	}
	found, err := m.find(ctx, own)
	unfit, err := unfit(ctx, err)
	found.Unusable = unfit
	if own != nil && err == nil {
		found.Unverified = unfit
		found.Proof = []event.OwnedObject{m.proof(found)}
	}
	return found, err
}

func (m mount) in(known []gate.Known) int {
	return slices.IndexFunc(known, func(k gate.Known) bool { return k.Address == m.resource })
}

// proof is the receipt's line on the mount that the state had.
func (m mount) proof(found gate.Inspection) event.OwnedObject {
	t := event.OwnedObject{Kind: m.kind.name, ID: m.path, Where: m.server.Address}
	switch {
	case len(found.Unverified) > 0:
		t.Reason = "not proved: " + found.Unverified[0].Why
	case len(found.Present) > 0:
		t.Reason, t.Fix = "still there", m.disable()
	default:
		t.Gone = true
	}
	return t
}

// listed is a mount as Vault lists it.
type listed struct {
	Type     string `json:"type"`
	Accessor string `json:"accessor"`
}

func (m mount) find(ctx context.Context, own *gate.Known) (found gate.Inspection, err error) {
	c, _, err := m.server.logIn(ctx, m.environ)
	if err != nil {
		return found, err
	}
	defer c.close(ctx)
	if err := m.server.may(ctx, c, m.capabilities(), m.grant()); err != nil {
		return found, err
	}
	if m.kv.Mount != "" {
		if err := m.kv.isVersion2(ctx, c); err != nil {
			return found, err
		}
	}
	all, err := get[map[string]listed](ctx, c, m.kind.list)
	if err != nil {
		return found, m.server.failed("it does not list its mounts", err, checkVault)
	}
	existing, taken := all[m.path+"/"]
	switch other := m.overlapping(all); {
	case taken && m.owns(own, existing):
		found.Present = []string{m.name(m.path)}
	case taken:
		found.Foreign = []gate.Foreign{m.foreign(own, existing)}
	case other != "":
		found.Foreign = []gate.Foreign{{
			What: m.name(other), Why: "a mount's path may not begin with another's; the stage's is " + m.path,
			Fixes: []string{m.otherPath()},
		}}
	}
	return found, nil
}

// capabilities are those that the token needs, by path.
func (m mount) capabilities() map[string][]string {
	all := map[string][]string{m.kind.list: {"read"}, m.kind.list + "/" + m.path: m.kind.capabilities}
	if m.leases {
		for _, how := range []string{revokePrefix, revokeForce} {
			all[how+m.path] = []string{"update", "sudo"}
		}
	}
	for _, path := range m.writes {
		all[path] = []string{"create", "read", "update", "delete"}
	}
	if m.kv.Mount != "" {
		all[m.kv.data()] = []string{"create", "read", "update"}
		all[m.kv.Mount+"/metadata/"+m.kv.Path] = []string{"read", "delete"}
	}
	return all
}

func (m mount) name(path string) string {
	return fmt.Sprintf("%s %s in the Vault at %s", m.kind.name, strings.Trim(path, "/"), m.server.Address)
}

// disable is the command that removes the mount.
func (m mount) disable() string { return m.kind.disable + m.path }

// owns reports whether a mount is the state's. An intent, and a destroy's proof, have only its address.
func (m mount) owns(own *gate.Known, existing listed) bool {
	if own == nil {
		return false
	}
	accessor, path := own.Attributes["accessor"], own.Attributes["path"]
	same := accessor == nil || accessor == "" || accessor == existing.Accessor
	return same && (path == nil || path == m.path)
}

func (m mount) foreign(own *gate.Known, existing listed) gate.Foreign {
	f := gate.Foreign{What: fmt.Sprintf("%s, of type %s", m.name(m.path), existing.Type)}
	f.Fixes = []string{m.otherPath(), "disable it, if nobody needs it: " + m.disable()}
	if own != nil && own.Attributes["path"] == m.path {
		f.Why = "it is not the one that the state knows: that one was disabled, and this one mounted since"
		f.ConflictsWith, f.Untrack = m.resource, m.resource
		return f
	}
	f.Why = "the stage's state knows none there: it is somebody else's, or the state was lost"
	if own == nil {
		f.Fixes = append([]string{"if the state was lost, bring it back: castle state restore"}, f.Fixes...)
		f.Import = &gate.Import{Address: m.resource, ID: m.path, What: m.name(m.path)}
	}
	return f
}

// grant is the fix for a token that lacks something.
func (m mount) grant() string { return "give it the policy of the stage, too: " + m.policy }

func (m mount) otherPath() string { return "give the stage another path: " + m.setting }

// overlapping returns a mount whose path begins with the wanted one, or vice versa: Vault refuses both.
func (m mount) overlapping(all map[string]listed) string {
	for path := range all {
		if strings.HasPrefix(path, m.path+"/") || strings.HasPrefix(m.path+"/", path) {
			return path
		}
	}
	return ""
}

// Two ways to end all leases below a path: the first deletes the users, the second drops only the leases
// (developer.hashicorp.com/vault/api-docs/system/leases).
const (
	revokePrefix = "sys/leases/revoke-prefix/"
	revokeForce  = "sys/leases/revoke-force/"
)

// revoke ends the engine's leases. Vault keeps an engine while one of them cannot be revoked, and none can
// be once Terraform has deleted the database connection. Users of a database that went with the cluster
// cannot be deleted and need not be, so their leases are dropped.
func (m mount) revoke(ctx context.Context, known []gate.Known, report func(string)) error {
	if m.in(known) < 0 {
		return nil
	}
	c, _, err := m.server.logIn(ctx, m.environ)
	if err != nil {
		return err
	}
	defer c.close(ctx)
	err = c.api.Do(ctx, http.MethodPost, revokePrefix+m.path, map[string]bool{"sync": true}, nil)
	if err == nil {
		return nil
	}
	if !notRevoked(err) || ctx.Err() != nil {
		return m.server.failed("it does not revoke the leases of "+m.path, err, m.fix(err))
	}
	if e := c.api.Do(ctx, http.MethodPost, revokeForce+m.path, nil, nil); e != nil {
		return m.server.failed("it does not drop the leases of "+m.path, e, m.fix(e))
	}
	report(fmt.Sprintf("%s: its database users could not be deleted, so castle has dropped their leases; "+
		"if the database still runs elsewhere, delete its users v-* there: %v", m.name(m.path), err))
	return nil
}

func (m mount) fix(err error) string {
	if httpjson.Status(err) == http.StatusForbidden {
		return m.grant()
	}
	return checkVault
}

// notRevoked reports whether Vault has tried to revoke a lease and its database has not answered. Any other
// failure is Vault's own and no reason to drop a lease.
func notRevoked(err error) bool {
	late, is := errors.AsType[net.Error](err)
	return says(err, "failed to revoke") || is && late.Timeout()
}

// ProveDatabase has Vault create and delete a database user at creds, such as database-blue/creds/grafana.
func (s Server) ProveDatabase(ctx context.Context, environ []string, creds string) error {
	c, _, err := s.logIn(ctx, environ)
	if err != nil {
		return err
	}
	defer c.close(ctx)
	var made struct {
		Lease string `json:"lease_id"`
	}
	if err = c.api.Do(ctx, http.MethodGet, creds, nil, &made); err == nil {
		err = c.api.Do(ctx, http.MethodPost, revokePrefix+made.Lease, map[string]bool{"sync": true}, nil)
	}
	if err != nil {
		return s.failed("it does not create and delete a user at "+creds, err, checkVault)
	}
	return nil
}

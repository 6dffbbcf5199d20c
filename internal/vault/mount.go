package vault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/httpjson"
)

// mount is an auth method or an engine of a stage, with the stage's other objects in Vault.
//
// A mount carries no owner. It is the stage's own only if the state has its accessor, which is unique, or if
// an interrupted run was creating it.
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

// inspect also reports the mount as unseen if the state has it and the Vault is unusable: a destroy would
// fail halfway.
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
	var answer struct {
		Data map[string]listed `json:"data"`
	}
	if err := c.call(ctx, http.MethodGet, m.kind.list, nil, &answer); err != nil {
		return found, m.server.problem("it does not list its mounts: "+err.Error(), checkVault)
	}
	existing, taken := answer.Data[m.path+"/"]
	switch {
	case taken && m.owns(own, existing):
		found.Present = []string{m.name(m.path)}
	case taken:
		found.Foreign = []gate.Foreign{m.foreign(own, existing)}
	default:
		if other := m.overlapping(answer.Data); other != "" {
			found.Foreign = []gate.Foreign{{
				What: m.name(other), Why: "a mount's path may not begin with another's; the stage's is " +
					m.path,

				Fixes: []string{m.otherPath()},
			}}
		}
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

// overlapping returns a mount whose path begins with the wanted one, or the other way round: Vault refuses
// both.
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
	err = c.call(ctx, http.MethodPost, revokePrefix+m.path, map[string]bool{"sync": true}, nil)
	if err == nil {
		return nil
	}
	if !notRevoked(err) || ctx.Err() != nil {
		return m.server.problem("it does not revoke the leases of "+m.path+": "+err.Error(), m.fix(err))
	}
	if e := c.call(ctx, http.MethodPost, revokeForce+m.path, nil, nil); e != nil {
		return m.server.problem("it does not drop the leases of "+m.path+": "+e.Error(), m.fix(e))
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
	late := net.Error(nil)
	return says(err, revokeFailed) || errors.As(err, &late) && late.Timeout()
}

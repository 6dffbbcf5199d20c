package vault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Two ways to end all leases below a path: the first has what was given out
// deleted, the second forgets it
// (developer.hashicorp.com/vault/api-docs/system/leases).
const (
	revokePrefix = "sys/leases/revoke-prefix/"
	revokeForce  = "sys/leases/revoke-force/"
)

// revoke ends what the engine gave out. Vault keeps an engine while one of its leases
// cannot be revoked, and none can be once Terraform has deleted the connection that
// they were made with. The users of a database that went with the cluster cannot be
// deleted and need not be: Vault forgets them.
func (m mount) revoke(ctx context.Context, known []gate.Known, report func(string)) error {
	if !slices.ContainsFunc(known, func(k gate.Known) bool { return k.Address == m.resource }) {
		return nil
	}
	c, _, err := m.logIn(ctx, m.environ)
	if err != nil {
		return err
	}
	defer c.leave(ctx)
	err = c.call(ctx, http.MethodPost, revokePrefix+m.path, map[string]bool{"sync": true}, nil)
	if err == nil {
		return nil
	}
	if !notRevoked(err) || ctx.Err() != nil {
		return m.trouble("it does not revoke what "+m.path+" gave out: "+err.Error(), m.remedy(err))
	}
	if e := c.call(ctx, http.MethodPost, revokeForce+m.path, nil, nil); e != nil {
		return m.trouble("it does not forget what "+m.path+" gave out: "+e.Error(), m.remedy(e))
	}
	report(fmt.Sprintf("%s: what it gave out could not be deleted, and Vault forgets it; where the database goes on elsewhere, delete its users v-* there: %v", m.name(m.path), err))
	return nil
}

// remedy is the way out where Vault does not do it.
func (m mount) remedy(err error) string {
	if status(err) == http.StatusForbidden {
		return m.grant()
	}
	return "look at the Vault"
}

// notRevoked reports whether Vault tried, and what had to hear of it did not, or let
// it wait for longer than castle does. Any other failure is Vault's own, and no reason
// to forget anything.
func notRevoked(err error) bool {
	late := net.Error(nil)
	return strings.Contains(err.Error(), "failed to revoke") || errors.As(err, &late) && late.Timeout()
}

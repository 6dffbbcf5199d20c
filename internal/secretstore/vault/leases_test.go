package vault

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/vault"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/httpjson"
)

// engine returns the arguments of secrets/vault-database, with the policy beside it.
func engine(t *testing.T, w *world) gate.Values {
	t.Helper()
	w.server.Policy("database", policy(t, "secrets/vault-database"))
	w.server.Token(token, emulator.Token{Policies: []string{"castle", "database"}})
	w.server.Mount("database-blue", emulator.Mount{Type: "database"})
	values := site(w)
	values["kind"], values["path"], values["resource"] = cty.StringVal("secrets"),
		cty.StringVal("database-blue"), cty.StringVal("vault_mount.database")
	values["writes"] = cty.ListVal([]cty.Value{cty.StringVal("database-blue/roles/grafana")})
	values["leases"] = cty.True
	return values
}

var database = gate.Known{Address: "vault_mount.database"}

func TestRevokeEndsTheEnginesLeases(t *testing.T) {
	for name, c := range map[string]struct {
		deletable bool
		known     []gate.Known
		left      []string
		reports   string
	}{
		"its database answers": {deletable: true, known: []gate.Known{database}},
		"its database is gone": {known: []gate.Known{database},
			reports: `failed to revoke "database-blue/creds/grafana/1"`},
		"the state knows no such engine": {deletable: true, left: []string{"database-blue/creds/grafana/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := preflight(t, w, engine(t, w))
			w.server.Lease("database-blue/creds/grafana/1", c.deletable)
			w.server.Lease("database-bluer/creds/grafana/1", c.deletable)
			var reports []string
			err := p.Revoke(t.Context(), c.known, func(s string) { reports = append(reports, s) })
			if err != nil {
				t.Fatal(err)
			}
			if left := w.server.Leases(); !slices.Equal(left,
				append(c.left, "database-bluer/creds/grafana/1")) {
				t.Errorf("left: %q", left)
			}
			if text := strings.Join(reports, "\n"); (text != "") != (c.reports != "") ||
				!strings.Contains(text, c.reports) {
				t.Errorf("reports: %q", text)
			}
		})
	}
}

func TestRevokeKeepsLeasesItMayNotRevoke(t *testing.T) {
	w := newWorld(t)
	p := preflight(t, w, engine(t, w))
	w.server.Lease("database-blue/creds/grafana/1", true)
	w.server.Policy("database", strings.ReplaceAll(policy(t, "secrets/vault-database"), `"update", "sudo"`,
		`"update"`))
	err := p.Revoke(t.Context(), []gate.Known{database}, nil)
	if err == nil || !strings.Contains(err.Error(), "it does not revoke the leases of database-blue") ||
		!strings.Contains(err.Error(), "give it the policy of the stage, too") {
		t.Errorf("%v", err)
	}
	found := inspect(t, w, engine(t, w), database)
	if len(found.Unusable) > 0 {
		t.Errorf("with the policy as it is written: %+v", found.Unusable)
	}
	if preflight(t, w, site(w)).Revoke != nil {
		t.Error("a mount without leases has a Revoke")
	}
}

// TestOnlyFailedRevocationsDropLeases covers a Vault with an internal failure: it reports nothing about the
// users.
func TestOnlyFailedRevocationsDropLeases(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"the database is gone": {&httpjson.Error{Status: http.StatusBadRequest,
			Messages: []string{`failed to revoke "database-blue/creds/grafana/1" (1 / 1): refused`}},
			true},
		"Vault cannot store": {&httpjson.Error{Status: http.StatusInternalServerError,
			Messages: []string{"internal error"}}, false},
		"Vault is sealed by now": {&httpjson.Error{Status: http.StatusServiceUnavailable,
			Messages: []string{"Vault is sealed"}}, false},
		"it takes too long": {context.DeadlineExceeded, true},
	} {
		if got := notRevoked(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

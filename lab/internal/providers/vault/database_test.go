package vault

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/postgres"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
	"github.com/ephemeral-castle/castle/lab/internal/vault/vaulttest"
)

// TestADatabaseMayComeLater configures Vault before there is a PostgreSQL, and
// gets credentials that work as soon as there is one.
func TestADatabaseMayComeLater(t *testing.T) {
	s := vaulttest.Start(t, "../../../..")
	p := configured(t, s, s.RootToken())
	l, err := net.Listen("tcp", "127.0.7.9:0")
	if err != nil {
		t.Fatal(err)
	}
	place := netip.MustParseAddrPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("host=%s port=%d dbname=lab user={{username}} password={{password}} sslmode=disable",
		place.Addr(), place.Port())
	block := plugin.Object(plugin.Values{"connection_url": text(url), "username": text("lab-admin"),
		"password": text("open-sesame")})
	config := plugin.Values{"backend": text("database"), "name": text("lab"), "verify_connection": cty.True,
		"allowed_roles": list("grafana"), "postgresql": block}
	applied(t, p.mount(), plugin.Values{"path": text("database"), "type": text("database")})
	early := plugintest.New(t, plugin.Provider{Resources: map[string]plugin.Resource{"it": p.connection()}},
		"it")
	if d := early.Apply(config); len(d) == 0 ||
		!strings.Contains(d[0].Summary, "error verifying connection") {
		t.Errorf("verified without a database: %v", d)
	}
	config["verify_connection"] = cty.False
	applied(t, p.connection(), config)
	applied(t, p.databaseRole(), plugin.Values{"backend": text("database"), "name": text("grafana"),
		"db_name": text("lab"), "default_ttl": cty.NumberIntVal(600),
		"creation_statements": list(`CREATE ROLE "{{name}}" WITH LOGIN PASSWORD '{{password}}' VALID ` +
			`UNTIL '{{expiration}}'`)})
	var credentials struct {
		LeaseID string `json:"lease_id"`
		Data    struct{ Username, Password string }
	}
	if err := s.Call(t.Context(), http.MethodGet, "database/creds/grafana", nil, &credentials); err == nil {
		t.Error("there are credentials without a database")
	}
	var log bytes.Buffer
	db, err := postgres.Start(t.Context(), postgres.Options{Dir: filepath.Join(t.TempDir(), "pg"),
		Place: place, Database: "lab", User: "lab-admin", Password: "open-sesame", Log: &log})
	if err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	defer db.Close() //nolint:errcheck // it ends with the test
	if err := s.Call(t.Context(), http.MethodGet, "database/creds/grafana", nil, &credentials); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := postgres.Query(t.Context(), place, "lab", credentials.Data.Username,
			credentials.Data.Password, "SELECT 1")
		return err
	}
	if err := ask(); err != nil {
		t.Errorf("fresh credentials: %v", err)
	}
	if err := s.Call(t.Context(), http.MethodPut, "sys/leases/revoke",
		map[string]any{"lease_id": credentials.LeaseID, "sync": true}, nil); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), "authentication failed") {
		t.Errorf("revoked credentials: %v", err)
	}
}

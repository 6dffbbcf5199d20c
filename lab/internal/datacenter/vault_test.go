package datacenter

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/vault"
)

func TestAVaultHoldsWhatTheConfigurationExpects(t *testing.T) {
	program, err := filepath.Abs("../../../bin/" + vault.Program)
	if err != nil {
		t.Fatal(err)
	}
	d, log := start(t, Config{Secrets: []string{"OWN_SECRET"}, Vault: &Vault{
		Program: program, Mount: "kv", Path: "castle/red",
		Policy: `path "kv/data/castle/*" { capabilities = ["read"] }`,
		Role:   "castle-red", RoleMount: "approle",
	}})
	held := d.Credentials()
	get := func(token string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "https://vault.example.org:8200/v1/kv/data/castle/red", nil)
		r.Header.Set("X-Vault-Token", token)
		w := httptest.NewRecorder()
		d.vault.server.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	code, body := get(held["VAULT_TOKEN"])
	for _, want := range []string{"OWN_SECRET", "GITHUB_TOKEN", "VAULT_READER_TOKEN", "BEGIN CERTIFICATE",
		`"PROXMOX_TOKEN_SECRET":"` + d.folders.secrets["PROXMOX_TOKEN_SECRET"]} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s is missing: %d %s", want, code, body)
		}
	}
	if code, _ := get("wrong"); code != http.StatusForbidden {
		t.Errorf("somebody else reads it, too: %d", code)
	}
	login := func(secret string) int {
		r := httptest.NewRequest(http.MethodPost, "https://vault.example.org:8200/v1/auth/approle/login",
			strings.NewReader(`{"role_id":"castle-red","secret_id":"`+secret+`"}`))
		w := httptest.NewRecorder()
		d.vault.server.Handler().ServeHTTP(w, r)
		return w.Code
	}
	if right, wrong := login(held[RoleSecret]), login("wrong"); right != http.StatusOK ||
		wrong == http.StatusOK {
		t.Errorf("AppRole: %d, and with another secret %d", right, wrong)
	}
	if kept, err := os.Stat(held["CASTLE_LAB_VAULT_KEYS"]); err != nil || kept.Mode().Perm() != 0o600 {
		t.Errorf("the operator's keys: %v, %v", kept, err)
	}
	if strings.Contains(log.String(), held["VAULT_TOKEN"]) {
		t.Error("the log holds the token")
	}
}

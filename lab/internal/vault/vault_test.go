package vault_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/vault"
	"github.com/ephemeral-castle/castle/lab/internal/vault/vaulttest"
)

// ask sends a request to the handler with a token.
func ask(s *vault.Server, method, path, token, body string) (int, string) {
	r := httptest.NewRequest(method, "https://vault.example.org:8200/v1/"+path, strings.NewReader(body))
	r.Header.Set("X-Vault-Token", token)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestATokenMayDoWhatItsPolicySaysAndNothingElse(t *testing.T) {
	s := vaulttest.Start(t, "../../..")
	if err := s.Fill(t.Context(), "secret", "castle/blue",
		map[string]string{"GITHUB_TOKEN": "hush"}); err != nil {
		t.Fatal(err)
	}
	token, err := s.Token(t.Context(), "castle", `path "secret/data/castle/*" { capabilities = ["read"] }`)
	if err != nil {
		t.Fatal(err)
	}
	if code, body := ask(s, http.MethodGet, "secret/data/castle/blue", token, ""); code != http.StatusOK ||
		!strings.Contains(body, `"GITHUB_TOKEN":"hush"`) {
		t.Errorf("read: %d, %s", code, body)
	}
	for _, path := range []string{"secret/data/castle/blue", "sys/policies/acl/castle", "sys/mounts/other"} {
		if code, _ := ask(s, http.MethodPost, path, token, "{}"); code != http.StatusForbidden {
			t.Errorf("%s is written: %d", path, code)
		}
	}
	if kept, err := os.Stat(s.KeysFile()); err != nil || kept.Mode().Perm() != 0o600 {
		t.Errorf("the operator's keys: %v, %v", kept, err)
	}
}

func TestASealedVaultAnswersSo(t *testing.T) {
	s := vaulttest.Start(t, "../../..")
	if err := s.Call(t.Context(), http.MethodPut, "sys/seal", nil, nil); err != nil {
		t.Fatal(err)
	}
	if code, body := ask(s, http.MethodGet, "sys/health", "", ""); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, `"sealed":true`) {
		t.Errorf("%d, %s", code, body)
	}
}

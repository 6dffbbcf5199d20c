package datacenter

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// took sends a request and returns how long the answer takes.
func took(h http.Handler, method, path string, headers ...string) time.Duration {
	r := httptest.NewRequest(method, "https://example.org"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	began := time.Now()
	h.ServeHTTP(httptest.NewRecorder(), r)
	return time.Since(began)
}

func TestOnlyTheListThatTerraformReadsIsSlow(t *testing.T) {
	const list = "/api/v3/secrets/raw?workspaceId=p&environment=prod&secretPath=/blue"
	for speed, want := range map[float64]time.Duration{1: 12 * time.Second, 50: 240 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			v, err := newFolders(Config{Speed: speed})
			if err != nil {
				t.Fatal(err)
			}
			h := v.handler()
			authorized := []string{"Authorization", "Bearer token"}
			provider := took(h, http.MethodGet, list+"&expandSecretReferences=true", authorized...)
			castle := took(h, http.MethodGet, list+"&viewSecretValue=false", authorized...)
			probe := took(h, http.MethodGet, list+"&expandSecretReferences=true")
			request := scaled(infisicalRequest, speed)
			if provider != want || castle != request || probe != request {
				t.Errorf("speed %g: Terraform waits %s, castle %s, a request without a token %s", speed,
					provider, castle, probe)
			}
		})
	}
}

func TestOnlyTerraformWaitsForVault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &landing{secrets: "/v1/kv/data/blue", read: vaultRead, write: vaultWrite}
		h := l.slow(http.NotFoundHandler())
		provider := []string{"User-Agent", "Terraform/1.11 terraform-provider-vault/5.0"}
		for _, tt := range []struct {
			method, path string
			headers      []string
			want         time.Duration
		}{
			{http.MethodGet, "/v1/kv/data/blue", provider, vaultRead},
			{http.MethodGet, "/v1/kv/data/blue", nil, 0},
			{http.MethodGet, "/v1/kv/data/blue/database", provider, 0},
			{http.MethodPut, "/v1/auth/jwt/config", provider, vaultWrite},
			{http.MethodPost, "/v1/auth/jwt/login", nil, 0},
		} {
			if got := took(h, tt.method, tt.path, tt.headers...); got != tt.want {
				t.Errorf("%s %s by %v takes %s, want %s", tt.method, tt.path, tt.headers, got, tt.want)
			}
		}
	})
}

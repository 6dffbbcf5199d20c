package vault

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
	"github.com/ephemeral-castle/castle/lab/internal/vault"
	"github.com/ephemeral-castle/castle/lab/internal/vault/vaulttest"
)

// configured is the provider, logged in with a token.
func configured(t *testing.T, s *vault.Server, token string) *provider {
	t.Helper()
	p := &provider{}
	if err := p.configure(t.Context(), plugin.Values{
		"address": cty.StringVal(s.URL()), "ca_cert_file": cty.StringVal(s.CAFile()),
		"token": cty.StringVal(token), "skip_child_token": cty.True,
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

func applied(t *testing.T, r plugin.Resource, config plugin.Values) *plugintest.Resource {
	t.Helper()
	x := plugintest.New(t, plugin.Provider{Resources: map[string]plugin.Resource{"it": r}}, "it")
	if d := x.Apply(config); len(d) > 0 {
		t.Fatalf("%s: %s", d[0].Summary, d[0].Detail)
	}
	x.Settled(config)
	return x
}

func text(s string) cty.Value { return cty.StringVal(s) }

func list(all ...string) cty.Value {
	var values []cty.Value
	for _, s := range all {
		values = append(values, cty.StringVal(s))
	}
	return cty.ListVal(values)
}

func TestASecretIsWrittenAndRead(t *testing.T) {
	s := vaulttest.Start(t, "../../../..")
	p := configured(t, s, s.RootToken())
	engine := applied(t, p.mount(), plugin.Values{"path": text("kv"), "type": text("kv-v2")})
	config := plugin.Values{"mount": text("kv"), "name": text("a/b"), "data_json": text(`{"k":"v","n":1}`)}
	secret := applied(t, p.secret(), config)
	config["data_json"] = text(`{"k":"w"}`)
	if d := secret.Apply(config); len(d) > 0 {
		t.Fatal(d[0].Summary)
	}
	secret.Settled(config)
	where := plugin.Values{"mount": text("kv"), "name": text("a/b")}
	read, err := p.readSecret(t.Context(), where)
	if err != nil || read.String("data_json") != `{"k":"w"}` || read.Map("data")["k"] != "w" {
		t.Errorf("%v, %v", read, err)
	}
	if d := secret.Destroy(); len(d) > 0 {
		t.Fatal(d[0].Summary)
	}
	// The real provider's data source takes a deleted version for a secret without data.
	if read, err = p.readSecret(t.Context(), where); err != nil || read.String("data_json") != "null" {
		t.Errorf("deleted: %v, %v", read, err)
	}
	where["name"] = text("never")
	if _, err = p.readSecret(t.Context(), where); err == nil ||
		!strings.Contains(err.Error(), `no secret found at "kv/data/never"`) {
		t.Errorf("never there: %v", err)
	}
	if d := engine.Destroy(); len(d) > 0 {
		t.Error(d[0].Summary)
	}
}

func TestATokenThatMayMakeNoChildIsRefused(t *testing.T) {
	s := vaulttest.Start(t, "../../../..")
	token, err := s.Token(t.Context(), "narrow", `path "secret/*" { capabilities = ["read"] }`)
	if err != nil {
		t.Fatal(err)
	}
	config := plugin.Values{"address": cty.StringVal(s.URL()), "ca_cert_file": cty.StringVal(s.CAFile()),
		"token": cty.StringVal(token)}
	err = (&provider{}).configure(t.Context(), config)
	if err == nil || !strings.Contains(err.Error(), "failed to create limited child token") ||
		!strings.Contains(err.Error(), "permission denied") {
		t.Errorf("error: %v", err)
	}
}

func TestAppRoleLogsIn(t *testing.T) {
	s := vaulttest.Start(t, "../../../..")
	do := func(path string, body, answer any) {
		t.Helper()
		if err := s.Call(t.Context(), http.MethodPost, path, body, answer); err != nil {
			t.Fatal(err)
		}
	}
	do("sys/auth/approle", map[string]string{"type": "approle"}, nil)
	do("auth/approle/role/castle", map[string]string{"token_policies": "default"}, nil)
	var role, secret struct{ Data map[string]any }
	if err := s.Call(t.Context(), http.MethodGet, "auth/approle/role/castle/role-id", nil,
		&role); err != nil {
		t.Fatal(err)
	}
	do("auth/approle/role/castle/secret-id", map[string]string{}, &secret)
	login := func(id string) error {
		return (&provider{}).configure(t.Context(), plugin.Values{
			"address": text(s.URL()), "ca_cert_file": text(s.CAFile()), "skip_child_token": cty.True,
			"auth_login": cty.ListVal(
				[]cty.Value{plugin.Object(plugin.Values{"path": text("auth/approle/login"),
					"method": cty.NullVal(cty.String),
					"parameters": plugin.StringMap(map[string]string{
						"role_id": fmt.Sprint(role.Data["role_id"]), "secret_id": id,
					})})}),
		})
	}
	if err := login(fmt.Sprint(secret.Data["secret_id"])); err != nil {
		t.Error(err)
	}
	if err := login("wrong"); err == nil || !strings.Contains(err.Error(), "invalid role or secret ID") {
		t.Errorf("a wrong secret id: %v", err)
	}
}

func TestATokenOfTheClusterLogsIn(t *testing.T) {
	s := vaulttest.Start(t, "../../../..")
	p := configured(t, s, s.RootToken())
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	// Vault gives it back without the space at its ends.
	public := strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	const issuer = "https://192.0.2.10:6443"
	method := applied(t, p.jwt(), plugin.Values{"path": text("blue"), "bound_issuer": text(issuer),
		"jwt_validation_pubkeys": list(public)})
	policy := applied(t, p.policy(),
		plugin.Values{"name": text("reader"), "policy": text(`path "kv/*" { capabilities = ["read"] }`)})
	config := plugin.Values{"backend": text("blue"), "role_name": text("eso"), "role_type": text("jwt"),
		"user_claim":      text("sub"),
		"bound_audiences": list("vault"), "bound_subject": text("system:serviceaccount:es:eso"),
		"token_policies": list("reader"), "token_ttl": cty.NumberIntVal(600)}
	role := applied(t, p.jwtRole(), config)
	login := func(claims map[string]any) error {
		all := map[string]any{"iss": issuer, "sub": "system:serviceaccount:es:eso", "aud": "vault",
			"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
		maps.Copy(all, claims)
		return s.Call(t.Context(), http.MethodPost, "auth/blue/login",
			map[string]string{"role": "eso", "jwt": sign(t, key, all)}, nil)
	}
	if err := login(nil); err != nil {
		t.Error(err)
	}
	for name, wrong := range map[string]string{"iss": "https://other",
		"sub": "system:serviceaccount:es:other", "aud": "other"} {
		if err := login(map[string]any{name: wrong}); err == nil {
			t.Errorf("%s = %s is let in", name, wrong)
		}
	}
	delete(config, "bound_subject")
	if d := role.Apply(config); len(d) > 0 {
		t.Fatal(d[0].Summary)
	}
	role.Settled(config)
	if err := login(map[string]any{"sub": "system:serviceaccount:es:other"}); err != nil {
		t.Errorf("without a bound subject: %v", err)
	}
	for _, x := range []*plugintest.Resource{role, policy, method} {
		if d := x.Destroy(); len(d) > 0 {
			t.Error(d[0].Summary)
		}
	}
	if err := login(nil); err == nil {
		t.Error("it is let in after the method is gone")
	}
}

func sign(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + encode(signature)
}

//go:build integration

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

// TestVault runs castle with real Terraform against a real Vault on loopback.
func TestVault(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"lab-vault", "lab-providers"} {
		if _, err := os.Stat("../../bin/" + program); err != nil {
			t.Fatalf("it is not built (make build vault): %v", err)
		}
	}
	policies := map[string][]byte{}
	for _, stage := range []string{"vault", "vault-jwt", "vault-database"} {
		policy, err := os.ReadFile("../../stages/secrets/" + stage + "/vault-policy.hcl")
		if err != nil {
			t.Fatal(err)
		}
		policies[stage+"-policy.hcl"] = policy
	}
	run(t, "testdata/vault", func(env *testscript.Env) error {
		v, err := startVault(env)
		if err != nil {
			return err
		}
		env.Values[vaultKey{}], env.Values[infisicalKey{}], env.Values[spyKey{}] = v, newInfisical(), &spy{}
		env.Setenv("VAULT_CACERT", filepath.Join(v.dir, "tls.crt"))
		env.Setenv("TF_VAR_vault_address", v.address)
		for name, policy := range policies {
			if err := os.WriteFile(filepath.Join(env.WorkDir, name), policy, 0o600); err != nil {
				return err
			}
		}
		return provide(env, map[string]string{
			"hashicorp/vault 5.10.1": "lab-providers", "infisical/infisical 0.19.24": "lab-providers"})
	}, map[string]func(*testscript.TestScript, bool, []string){"vault": vault, "infisical": infisical,
		"spy": spying, "identities": identities,
		// s3 starts an S3 server. CASTLE_STATE_STORE names it, STORE is its folder.
		"s3": func(ts *testscript.TestScript, _ bool, _ []string) {
			server := storetest.S3(t)
			for _, entry := range append(server.Env, "CASTLE_STATE_STORE="+server.URL, "STORE="+server.Dir) {
				name, value, _ := strings.Cut(entry, "=")
				ts.Setenv(name, value)
			}
		}})
}

type vaultKey struct{}

// realVault is one that runs for a script.
type realVault struct {
	dir, address, root string
	client             *http.Client
}

func startVault(env *testscript.Env) (*realVault, error) {
	v := &realVault{dir: filepath.Join(env.WorkDir, ".vault")}
	roots, err := v.certificate()
	if err != nil {
		return nil, err
	}
	program, err := filepath.Abs("../../bin/lab-vault")
	if err != nil {
		return nil, err
	}
	path := func(name string) string { return filepath.Join(v.dir, name) }
	c := exec.Command(program, "--address", "127.0.0.1:0", "--certificate", path("tls.crt"), "--key",
		path("tls.key"), "--keys", path("keys.json"))
	stdin, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	env.Defer(func() {
		stdin.Close() //nolint:errcheck // it ends with it
		c.Wait()      //nolint:errcheck // likewise
	})
	var ready struct{ Address string }
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		return nil, err
	}
	kept, err := os.ReadFile(path("keys.json"))
	if err != nil {
		return nil, err
	}
	var keys struct {
		RootToken string `json:"root_token"`
	}
	v.address = ready.Address
	v.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	err = json.Unmarshal(kept, &keys)
	v.root = keys.RootToken
	return v, err
}

// certificate signs for the loopback itself.
func (v *realVault) certificate() (*x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return roots,
		errors.Join(os.Mkdir(v.dir, 0o700), os.WriteFile(filepath.Join(v.dir, "tls.crt"), bundle, 0o600),
			os.WriteFile(filepath.Join(v.dir, "tls.key"),
				pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// call is what Vault's operator does.
func (v *realVault) call(ts *testscript.TestScript, method, path string, body []byte, answer any) {
	r, err := http.NewRequest(method, v.address+"/v1/"+path, bytes.NewReader(body))
	ts.Check(err)
	r.Header.Set("X-Vault-Token", v.root)
	response, err := v.client.Do(r)
	ts.Check(err)
	defer response.Body.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(response.Body)
	ts.Check(err)
	if response.StatusCode >= 400 {
		ts.Fatalf("vault: %s %s: %s: %s", method, path, response.Status, content)
	}
	if answer != nil {
		ts.Check(json.Unmarshal(content, answer))
	}
}

// vault is what somebody does who may do everything:
//
//	vault write PATH FILE       writes a file of JSON
//	vault read PATH             prints the data
//	vault delete PATH           deletes
//	vault show                  prints all that is configured
//	vault revoke-lease LEASE    ends a lease at once
//	vault policy NAME FILE      writes a policy
//	vault token POLICY [TTL]    VAULT_TOKEN is a new token with this policy
//	vault revoke                VAULT_TOKEN is valid no more
//	vault role POLICY           TF_VAR_vault_role_id and _secret_id are a new AppRole's; VAULT_TOKEN is none
func vault(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: vault write|read|delete|policy|token|revoke|role")
	}
	v := ts.Value(vaultKey{}).(*realVault)
	encode := func(x any) []byte {
		b, err := json.Marshal(x)
		ts.Check(err)
		return b
	}
	switch args[0] {
	case "write":
		v.call(ts, http.MethodPost, args[1], []byte(ts.ReadFile(args[2])), nil)
	case "read":
		var answer struct{ Data json.RawMessage }
		v.call(ts, http.MethodGet, args[1], nil, &answer)
		fmt.Fprintln(ts.Stdout(), string(answer.Data))
	case "delete":
		v.call(ts, http.MethodDelete, args[1], nil, nil)
	case "show":
		v.show(ts)
	case "revoke-lease":
		v.call(ts, http.MethodPost, "sys/leases/revoke",
			encode(map[string]any{"lease_id": args[1], "sync": true}), nil)
	case "policy":
		v.call(ts, http.MethodPut, "sys/policies/acl/"+args[1],
			encode(map[string]string{"policy": ts.ReadFile(args[2])}), nil)
	case "token":
		var made struct {
			Auth struct {
				ClientToken string `json:"client_token"`
			}
		}
		v.call(ts, http.MethodPost, "auth/token/create-orphan",
			encode(map[string]any{"policies": []string{args[1]}}), &made)
		ts.Setenv("VAULT_TOKEN", made.Auth.ClientToken)
	case "revoke":
		v.call(ts, http.MethodPost, "auth/token/revoke",
			encode(map[string]string{"token": ts.Getenv("VAULT_TOKEN")}), nil)
	case "role":
		var role, secret struct{ Data map[string]any }
		v.call(ts, http.MethodPost, "sys/auth/approle", []byte(`{"type":"approle"}`), nil)
		v.call(ts, http.MethodPost, "auth/approle/role/castle",
			encode(map[string]string{"token_policies": args[1]}), nil)
		v.call(ts, http.MethodGet, "auth/approle/role/castle/role-id", nil, &role)
		v.call(ts, http.MethodPost, "auth/approle/role/castle/secret-id", []byte("{}"), &secret)
		ts.Setenv("TF_VAR_vault_role_id", fmt.Sprint(role.Data["role_id"]))
		ts.Setenv("TF_VAR_vault_role_secret_id", fmt.Sprint(secret.Data["secret_id"]))
		ts.Setenv("VAULT_TOKEN", "")
	default:
		ts.Fatalf("vault: unknown %q", args[0])
	}
}

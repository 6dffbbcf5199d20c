package vault_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/vault"
	"github.com/ephemeral-castle/castle/internal/gate"
	castle "github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/lab/internal/vault/vaulttest"
)

// TestTheEmulatorIsToldOfAsARealVault brings both into the same states and compares castle's
// messages: its fast tests rely on the emulator.
func TestTheEmulatorIsToldOfAsARealVault(t *testing.T) {
	text, err := os.ReadFile("../../../stages/secrets/vault/vault-policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	policy := string(text)
	genuine, fake := vaulttest.Start(t, "../../.."), emulator.New()
	served := httptest.NewUnstartedServer(fake)
	served.Config.ErrorLog = log.New(io.Discard, "", 0)
	served.StartTLS()
	defer served.Close()
	at := map[string]castle.Server{
		"Vault": {Address: genuine.URL(), CAFile: genuine.CAFile()},
		"the emulator": {
			Address: served.URL,
			CAFile: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
				Bytes: served.Certificate().Raw})),
		},
	}
	call := func(method, path string, body any) {
		t.Helper()
		if err := genuine.Call(t.Context(), method, path, body, nil); err != nil {
			t.Fatal(err)
		}
	}
	// grant has a token of either with these policies.
	tokens := map[string]string{}
	grant := func(policies ...string) {
		t.Helper()
		var made struct {
			Auth struct {
				ClientToken string `json:"client_token"`
			}
		}
		body := map[string]any{"policies": append([]string{"default"}, policies...), "ttl": "1h"}
		if err := genuine.Call(t.Context(), http.MethodPost, "auth/token/create-orphan", body,
			&made); err != nil {
			t.Fatal(err)
		}
		fake.Token("hvs.fake", emulator.Token{Policies: policies, TTL: time.Hour})
		tokens = map[string]string{"Vault": made.Auth.ClientToken, "the emulator": "hvs.fake"}
	}
	write := func(name, text string) {
		t.Helper()
		call(http.MethodPut, "sys/policies/acl/"+name, map[string]string{"policy": text})
		fake.Policy(name, text)
	}
	// compare runs castle against both, and expects the same message, which contains words.
	compare := func(about, words string, ask func(context.Context, castle.Server, []string) string) {
		t.Helper()
		answers := map[string]string{}
		for name, server := range at {
			answers[name] = strings.ReplaceAll(ask(t.Context(), server,
				[]string{"VAULT_TOKEN=" + tokens[name]}),
				server.Address, "ADDRESS")
		}
		if answers["Vault"] != answers["the emulator"] || !strings.Contains(answers["Vault"], words) {
			t.Errorf("%s:\n  of Vault it says %q\n  of the emulator  %q\n  and not %q", about,
				answers["Vault"],
				answers["the emulator"], words)
		}
	}
	usable := func(ctx context.Context, s castle.Server, environ []string) string {
		err := castle.Place{Server: s, Mount: "secret",
			Path: "ephemeral-castle/blue/proxmox"}.Usable(ctx, environ)
		if problem := (*castle.Problem)(nil); err != nil && !errors.As(err, &problem) {
			t.Errorf("not a problem: %v", err)
		}
		if err == nil {
			return "usable"
		}
		return err.Error()
	}

	write("castle", policy)
	grant("castle")
	compare("nothing is mounted", "nothing is mounted at secret", usable)

	call(http.MethodPost, "sys/mounts/secret",
		map[string]any{"type": "kv", "options": map[string]string{"version": "1"}})
	fake.Mount("secret", emulator.Mount{Type: "kv", Options: map[string]string{"version": "1"}})
	compare("version 1", "the KV engine at secret is of version 1", usable)

	call(http.MethodDelete, "sys/mounts/secret", nil)
	call(http.MethodPost, "sys/mounts/secret", map[string]any{"type": "database"})
	fake.Mount("secret", emulator.Mount{Type: "database"})
	compare("no KV", "secret is not a KV engine, but database", usable)

	call(http.MethodDelete, "sys/mounts/secret", nil)
	fake.Mount("secret", emulator.Mount{Type: "kv", Options: map[string]string{"version": "2"}})
	if err := genuine.Fill(t.Context(), "secret", "other", map[string]string{"X": "y"}); err != nil {
		t.Fatal(err)
	}
	compare("nothing written", "there is nothing at ephemeral-castle/blue/proxmox", usable)

	call(http.MethodPost, "secret/data/ephemeral-castle/blue/proxmox",
		map[string]any{"data": map[string]string{"GITHUB_TOKEN": "hush"}})
	fake.SetSecret("secret", "ephemeral-castle/blue/proxmox", map[string]string{"GITHUB_TOKEN": "hush"})
	compare("all well", "usable", usable)

	call(http.MethodPost, "sys/auth/approle", map[string]string{"type": "approle"})
	compare("an AppRole that nobody knows",
		"AppRole is refused at auth/approle: invalid role or secret ID (400)",
		func(ctx context.Context, s castle.Server, environ []string) string {
			s.Role = castle.Role{Mount: "approle", ID: "castle", Secret: "wrong"}
			return usable(ctx, s, environ)
		})

	grant()
	compare("no policy", "the token has no policy for anything below it", usable)

	write("other", `path "secret/data/somebody/*" { capabilities = ["read"] }`)
	grant("other")
	compare("another policy", "the token may not read secret/data/ephemeral-castle/blue/proxmox", usable)

	mountable := func(ctx context.Context, s castle.Server, environ []string) string {
		p, err := castle.PreflightTypes()[1].New("vault_mount.free", gate.Target{Environ: environ},
			gate.Values{
				"address": cty.StringVal(s.Address), "ca_file": cty.StringVal(s.CAFile),
				"kind": cty.StringVal("auth"), "path": cty.StringVal("jwt-blue"),
				"resource": cty.StringVal("vault_jwt_auth_backend.cluster"),
				"setting":  cty.StringVal("vault_jwt_path"), "policy": cty.StringVal("docs/vault.md"),
				"writes": cty.ListVal([]cty.Value{cty.StringVal("auth/jwt-blue/config")}),
			})
		if err != nil {
			t.Fatal(err)
		}
		found, err := p.Inspect(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		finding := "free"
		for _, f := range append(found.Unusable, found.Foreign...) {
			finding = f.What + ": " + f.Why
		}
		return finding
	}
	compare("it may not mount",
		"the token may not create, read, update, delete auth/jwt-blue/config; read sys/auth; create, "+
			"update, delete, sudo sys/auth/jwt-blue", mountable)

	write("mounter", `
path "sys/auth" { capabilities = ["read"] }
path "sys/auth/jwt-*" { capabilities = ["create", "update", "delete", "sudo"] }
path "auth/jwt-*" { capabilities = ["create", "read", "update", "delete"] }
`)
	grant("mounter")
	compare("a free path", "free", mountable)
	call(http.MethodPost, "sys/auth/jwt-blue", map[string]any{"type": "jwt"})
	fake.Mount("auth/jwt-blue", emulator.Mount{Type: "jwt"})
	compare("a taken path", "auth method jwt-blue in the Vault at ADDRESS, of type jwt: the stage's state "+
		"knows none there", mountable)

	grant("castle")
	call(http.MethodPost, "auth/token/revoke", map[string]string{"token": tokens["Vault"]})
	fake.Revoke("hvs.fake")
	compare("a token that is valid no more", "it has expired or was revoked", usable)

	call(http.MethodPut, "sys/seal", nil)
	fake.Set(emulator.State{Sealed: true})
	compare("sealed", "it is sealed", usable)
	compare("sealed, and a mount", "it is sealed", mountable)
}

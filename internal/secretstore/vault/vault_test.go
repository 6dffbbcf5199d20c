package vault

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

	emulator "github.com/ephemeral-castle/castle/internal/emulator/vault"
)

// policy is the one that stands beside secrets/vault.
func policy(t *testing.T, stage string) string {
	t.Helper()
	text, err := os.ReadFile("../../../stages/" + stage + "/vault-policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// world is a healthy Vault, and the configuration with which castle reaches it.
type world struct {
	server  *emulator.Server
	place   Place
	environ []string
}

const token = "hvs.castle"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{server: emulator.New(), environ: []string{"VAULT_TOKEN=" + token}}
	w.server.Policy("castle", policy(t, "secrets/vault"))
	w.server.Token(token, emulator.Token{Policies: []string{"castle"}, TTL: 24 * time.Hour})
	w.server.Mount("secret", emulator.Mount{Type: "kv", Options: map[string]string{"version": "2"}})
	w.server.SetSecret("secret", "ephemeral-castle/blue/proxmox", map[string]string{"GITHUB_TOKEN": "hush"})
	w.place = Place{Server: w.serve(t, w.server), Mount: "secret", Path: "ephemeral-castle/blue/proxmox"}
	return w
}

// serve has h answer under a certificate that the returned server trusts.
func (w *world) serve(t *testing.T, h http.Handler) Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return Server{
		Address: s.URL,
		CAFile:  string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
	}
}

func TestAReadablePlaceIsUsable(t *testing.T) {
	w := newWorld(t)
	if err := w.place.Usable(t.Context(), w.environ); err != nil {
		t.Fatal(err)
	}
	w.server.Role("castle", "s3cret", "castle")
	w.place.Server.Role = Role{Mount: "approle", ID: "castle", Secret: "s3cret"}
	if err := w.place.Usable(t.Context(), nil); err != nil {
		t.Errorf("as an AppRole: %v", err)
	}
	w.server.Set(emulator.State{Standby: true}) // it forwards
	if err := w.place.Usable(t.Context(), nil); err != nil {
		t.Errorf("a standby: %v", err)
	}
}

// TestUsableReturnsTheProblem breaks one part of a world per case, with its own reason and fix.
func TestUsableReturnsTheProblem(t *testing.T) {
	for name, c := range map[string]struct {
		breaks   func(*testing.T, *world)
		why, fix string
	}{
		"sealed": {func(_ *testing.T, w *world) { w.server.Set(emulator.State{Sealed: true}) },
			"it is sealed", "vault operator unseal"},
		"uninitialised": {func(_ *testing.T, w *world) { w.server.Set(emulator.State{Uninitialised: true}) },
			"it is not initialised", "vault operator init"},
		"a DR secondary": {func(_ *testing.T, w *world) { w.server.Set(emulator.State{Secondary: true}) },
			"secondary for disaster recovery", "name the primary"},
		"a standby that does not forward": {
			func(_ *testing.T, w *world) {
				w.server.Set(emulator.State{Standby: true, Active: "https://vault-2.example.org:8200"})
			},
			"it is a standby and redirects to https://vault-2.example.org:8200",
			"the active node or the load balancer",
		},
		"an AppRole at such a standby": {
			func(_ *testing.T, w *world) {
				w.server.Set(emulator.State{Standby: true, Active: "https://vault-2.example.org:8200"})
				w.place.Server.Role = Role{Mount: "approle", ID: "castle", Secret: "s3cret"}
			},
			"it is a standby and redirects to", "load balancer",
		},
		"another authority": {func(_ *testing.T, w *world) { w.place.Server.CAFile = "" },
			"no trusted authority has signed its certificate", "vault_ca_cert_file"},
		"no certificate": {func(_ *testing.T, w *world) { w.place.Server.CAFile = "/dev/null" },
			"has no PEM certificate", "vault_ca_cert_file"},
		"nobody there": {func(_ *testing.T, w *world) { w.place.Server.Address = "https://127.0.0.1:1" },
			"it does not answer: dial tcp 127.0.0.1:1", "vault_address"},
		"something else": {
			func(t *testing.T, w *world) {
				w.place.Server = w.serve(t,
					http.NotFoundHandler())
			}, "this is not a Vault: Not Found (404)", "vault_address",
		},
		"another address": {func(t *testing.T, w *world) {
			w.place.Server = w.serve(t, http.RedirectHandler("https://127.0.0.1:1/",
				http.StatusMovedPermanently))
		}, "it redirects to https://127.0.0.1:1, where castle does not send the token", "vault_address"},
		"no token": {func(_ *testing.T, w *world) { w.environ = nil }, "VAULT_TOKEN is not set",
			"set VAULT_TOKEN"},
		"an expired token": {func(_ *testing.T, w *world) { w.server.Revoke(token) },
			"it has expired or was revoked", "make a new one"},
		"root": {
			func(_ *testing.T, w *world) {
				w.server.Token(token,
					emulator.Token{Policies: []string{"root"}})
			}, "the token is root's", "vault token create",
		},
		"a wrong AppRole": {
			func(_ *testing.T, w *world) {
				w.place.Server.Role = Role{Mount: "approle", ID: "castle", Secret: "wrong"}
			},
			"AppRole is refused at auth/approle: invalid role or secret ID (400)", "vault_role_secret_id",
		},
		"no policy": {
			func(_ *testing.T, w *world) {
				w.server.Token(token,
					emulator.Token{})
			}, "the token has no policy for anything below it", "castle's policy",
		},
		"a policy for something else": {
			func(_ *testing.T, w *world) {
				w.server.Policy("castle", `path "secret/data/other/*" { capabilities = ["read"] }`)
			},
			"the token may not read secret/data/ephemeral-castle/blue/proxmox", "castle's policy",
		},
		"version 1": {func(_ *testing.T, w *world) { w.server.Mount("secret", emulator.Mount{Type: "kv"}) },
			"the KV engine at secret is of version 1", "vault kv enable-versioning secret"},
		"no KV": {func(_ *testing.T, w *world) { w.server.Mount("secret", emulator.Mount{Type: "database"}) },
			"secret is not a KV engine, but database", "vault_kv_mount"},
		"no engine": {func(_ *testing.T, w *world) { w.place.Mount = "kv" },
			"nothing is mounted at kv, or the token has no policy", "vault_kv_mount"},
		"no secret": {func(_ *testing.T, w *world) { w.place.Path = "ephemeral-castle/green/proxmox" },
			"there is nothing at ephemeral-castle/green/proxmox", "castle secrets seed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.breaks(t, w)
			ctx, stop := context.WithTimeout(t.Context(), 4*time.Second) // castle repeats little then
			defer stop()
			err := w.place.Usable(ctx, w.environ)
			var problem *Problem
			if !errors.As(err, &problem) {
				t.Fatalf("not a problem: %v", err)
			}
			if !strings.Contains(problem.Reason, c.why) ||
				!strings.Contains(strings.Join(problem.Fixes, "\n"), c.fix) {
				t.Errorf("%v", problem)
			}
			if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "hush") {
				t.Errorf("a secret is told: %v", err)
			}
		})
	}
}

// TestTheTokenIsNotSentToAnotherHost has a standby name another host.
func TestTheTokenIsNotSentToAnotherHost(t *testing.T) {
	w := newWorld(t)
	var asked int
	other := w.serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	w.place.Server.CAFile += other.CAFile
	w.server.Set(emulator.State{Standby: true, Active: other.Address})
	if err := w.place.Usable(t.Context(), w.environ); err == nil || asked > 0 {
		t.Errorf("%v, and the other host was asked %d times", err, asked)
	}
}

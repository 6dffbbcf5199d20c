package doctor

import (
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/emulator/vault"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/secret"
	realcastle "github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

const vaultToken = "hvs.castle"

// vaultWorld is a cluster with its secrets in a Vault, where it mounts an auth method.
type vaultWorld struct {
	server *vault.Server
	world  world
}

func newVaultWorld(t *testing.T) *vaultWorld {
	t.Helper()
	w := &vaultWorld{server: vault.New(), world: world{environ: []string{"VAULT_TOKEN=" + vaultToken,
		"HOME=" + t.TempDir()}}}
	policy, err := stages.Library.ReadFile("secrets/vault/vault-policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	w.server.Policy("castle", string(policy)+`
path "sys/auth" { capabilities = ["read"] }
path "sys/auth/jwt-*" { capabilities = ["create", "update", "delete", "sudo"] }
path "auth/jwt-*" { capabilities = ["create", "read", "update", "delete"] }
`)
	w.server.Token(vaultToken, vault.Token{Policies: []string{"castle"}, TTL: 24 * time.Hour})
	w.server.Mount("secret", vault.Mount{Type: "kv", Options: map[string]string{"version": "2"}})
	w.fill(nil)
	w.world.vars = map[string]string{"vault_address": secure(t, w.server)}
	w.world.target = Target{
		Known:   func(*config.Stage) ([]gate.Known, error) { return nil, nil },
		Started: func(*config.Stage) bool { return false }, Plugins: t.TempDir(),
	}
	return w
}

// fill writes the secrets that the stage reads, with the given ones instead.
func (w *vaultWorld) fill(but map[string]string) {
	all := map[string]string{}
	for _, name := range []string{"PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "GITHUB_TOKEN",
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		all[name] = password
	}
	maps.Copy(all, but)
	w.server.SetSecret("secret", "ephemeral-castle/blue/lab", all)
}

func (w *vaultWorld) examine(t *testing.T) *Report {
	t.Helper()
	repository := t.TempDir()
	for name, text := range map[string]string{
		"clusters/blue/lab/cluster.hcl": `
stage "vault" { source = "secrets/vault" }
stage "landing" { source = "secrets/landing" }
`,
		"clusters/blue/lab/terraform.tfvars": `vault_database_host = "127.13.0.20"`,
		"stages/secrets/landing/stage.hcl": `
stage { summary = "Mounts something" }
preflight "vault_mount" "free" {
  address  = var.vault_address
  kind     = "auth"
  path     = "jwt-blue"
  resource = "vault_jwt_auth_backend.cluster"
  setting  = "vault_jwt_path"
  policy   = "docs/vault.md"
  writes   = ["auth/jwt-blue/config"]
}
`,
		"stages/secrets/landing/main.tf": `
resource "terraform_data" "x" {}
variable "vault_address" { type = string }
variable "vault_database_host" { type = string }
`,
	} {
		path := filepath.Join(repository, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cluster, diags := config.Load(config.Options{
		Repository: repository, Cluster: "blue", Vars: w.world.vars, CastleVersion: "1.0.0",
		Library: stages.Library, Templates: templates.Files,
		Preflights: realcastle.PreflightTypes(),
	})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	w.world.target.Name, w.world.target.Platform, w.world.target.Stages, w.world.target.Masker = cluster.Name,
		cluster.Platform,
		cluster.Stages, &secret.Masker{}
	return w.world.ask(t)
}

func TestHealthyClusterWithVaultIsGreen(t *testing.T) {
	w := newVaultWorld(t)
	l := listen(t, "127.13.0.20:5432")
	defer l.Close()
	w.world.target.Exists = true
	report := w.examine(t)
	asked := map[string]int{}
	for _, f := range report.Findings {
		if strings.HasPrefix(f.Name, "vault") {
			asked[f.Name]++
			if f.Colour != finding.Green {
				t.Errorf("%+v", f)
			}
		}
	}
	for _, name := range []string{"vault", "vault.api", "vault.token", "vault.clock", "vault.mounts",
		"vault.database"} {
		if asked[name] != 1 {
			t.Errorf("%s is reported %d times", name, asked[name])
		}
	}
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestBrokenVaultIsReported breaks one thing of it at a time.
func TestBrokenVaultIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		breaks    func(*testing.T, *vaultWorld)
		name      string
		colour    finding.Colour
		text, fix string
	}{
		"sealed": {func(_ *testing.T, w *vaultWorld) { w.server.Set(vault.State{Sealed: true}) },
			"vault.api", finding.Red, "it is sealed", "vault operator unseal"},
		"sealed, and the token": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Set(vault.State{Sealed: true})
		},
			"vault.token", finding.Grey, "the Vault is not available", ""},
		"sealed, and the secrets": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Set(vault.State{Sealed: true})
		},
			"vault", finding.Grey, "the Vault is not available", ""},
		"sealed, and the mounts": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Set(vault.State{Sealed: true})
		},
			"vault.mounts", finding.Grey, "the Vault is not available", ""},
		"uninitialised": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Set(vault.State{Uninitialised: true})
		}, "vault.api", finding.Red,
			"it is not initialised", "vault operator init"},
		"a standby that forwards": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Set(vault.State{Standby: true})
		},
			"vault.api", finding.Yellow, "is a standby", "load balancer"},
		"a standby that sends away": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Set(vault.State{Standby: true, Active: "https://localhost:1"})
		},
			"vault.token", finding.Red, "a standby and redirects to https://localhost:1", "load balancer"},
		"nobody answers": {func(_ *testing.T,
			w *vaultWorld) {
			w.world.vars["vault_address"] = "https://127.0.0.1:1"
		}, "vault.api", finding.Red,
			"connection refused", "vault_address"},
		"the certificate is nobody's": {
			func(t *testing.T, w *vaultWorld) { w.world.vars["vault_address"] = distrusted(t, w.server) },
			"vault.api", finding.Red, "no trusted authority has signed", "vault_ca_cert_file",
		},
		"no Vault": {func(t *testing.T,
			w *vaultWorld) {
			w.world.vars["vault_address"] = secure(t, http.NotFoundHandler())
		}, "vault.api", finding.Red,
			"this is not a Vault", "vault_address"},
		"there is no token": {func(_ *testing.T, w *vaultWorld) { w.world.environ = w.world.environ[1:] },
			"vault.token", finding.Red, "VAULT_TOKEN is not set", "castle's policy"},
		"the token has expired": {func(_ *testing.T, w *vaultWorld) { w.server.Revoke(vaultToken) },
			"vault.token",
			finding.Red, "it has expired or was revoked", "make a new one"},
		"the token is root's": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Token(vaultToken, vault.Token{Policies: []string{"root"}})
		}, "vault.token",
			finding.Red, "the token is root's", "make such a token"},
		"the token ends soon": {func(_ *testing.T, w *vaultWorld) {
			w.server.Token(vaultToken, vault.Token{Policies: []string{"castle"}, TTL: 10 * time.Minute})
		}, "vault.token", finding.Yellow, "expires in 10m0s", "vault token renew"},
		"the token never ends": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Token(vaultToken, vault.Token{Policies: []string{"castle"}})
		}, "vault.token",
			finding.Yellow, "never expires", "-period"},
		"the token has no policy": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Token(vaultToken, vault.Token{TTL: 24 * time.Hour})
		}, "vault", finding.Red,
			"no policy for anything below it", "castle's policy"},
		"the token may not mount": {func(t *testing.T, w *vaultWorld) { w.readOnly(t) }, "vault.mounts",
			finding.Red, "may not create, update, delete, sudo sys/auth/jwt-blue", "docs/vault.md"},
		"the engine is of version 1": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Mount("secret", vault.Mount{Type: "kv"})
		}, "vault", finding.Red, "of version 1",
			"enable-versioning"},
		"nothing was written": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.SetSecret("secret", "ephemeral-castle/blue/lab", nil)
		}, "vault", finding.Red,
			"there is nothing at ephemeral-castle/blue/lab", "castle secrets seed"},
		"a secret is empty": {func(_ *testing.T,
			w *vaultWorld) {
			w.fill(map[string]string{"GITHUB_TOKEN": ""})
		}, "vault", finding.Red,
			"lacks, or has empty: GITHUB_TOKEN.", "castle secrets seed blue/lab"},
		"the mount is somebody's": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Mount("auth/jwt-blue", vault.Mount{Type: "jwt"})
		}, "vault.mounts", finding.Red,
			"auth method jwt-blue in the Vault", "another path: vault_jwt_path"},
		"a clock is off": {func(_ *testing.T,
			w *vaultWorld) {
			w.server.Set(vault.State{Behind: 90 * time.Second})
		}, "vault.clock", finding.Yellow,
			"ahead of Vault", "NTP"},
		"there is no database yet": {func(*testing.T, *vaultWorld) {}, "vault.database", finding.Grey,
			"created with the cluster", ""},
		"the database does not answer": {
			func(_ *testing.T, w *vaultWorld) { w.world.target.Exists = true }, "vault.database",
			finding.Yellow,
			"the database at 127.13.0.20:5432 does not answer", "PostgreSQL and its Service",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newVaultWorld(t)
			c.breaks(t, w)
			report := w.examine(t)
			if report.Healthy && c.colour == finding.Red {
				t.Error("nothing is red")
			}
			expect(t, report.Findings, c.name, c.colour, c.text, c.fix)
			for _, f := range report.Findings {
				if strings.Contains(f.Text+f.Fix, vaultToken) {
					t.Errorf("%s contains the token", f.Name)
				}
			}
		})
	}
}

// readOnly gives the token only the policy of secrets/vault.
func (w *vaultWorld) readOnly(t *testing.T) {
	t.Helper()
	policy, err := stages.Library.ReadFile("secrets/vault/vault-policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	w.server.Policy("castle", string(policy)+`path "sys/auth" { capabilities = ["read"] }`+"\n"+
		`path "auth/jwt-*" { capabilities = ["create", "read", "update", "delete"] }`)
}

package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	emulated "github.com/ephemeral-castle/castle/internal/emulator/infisical"
	datacenters "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	vaults "github.com/ephemeral-castle/castle/internal/emulator/vault"
)

const vaultToken = "hvs.open-sesame"

// front stands before a system and redirects some of its requests.
type front struct {
	*httptest.Server
	system    http.Handler
	redirects atomic.Pointer[redirection]
}

// redirection is how a front redirects the paths that match.
type redirection struct {
	status  int
	paths   *regexp.Regexp
	address string
}

func newFront(t *testing.T, system http.Handler) *front {
	t.Helper()
	f := &front{system: system}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := f.redirects.Load(); to != nil && to.paths.MatchString(r.URL.Path) {
			w.Header().Set("Location", to.address+r.URL.RequestURI())
			w.WriteHeader(to.status)
			return
		}
		f.system.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// TestNoSecretFollowsARedirect redirects a login, or every request, of each system to another host. castle
// sends nothing there, Terraform does not start the provider, and the error names that host.
func TestNoSecretFollowsARedirect(t *testing.T) {
	for name, c := range map[string]struct {
		system func(*testing.T) http.Handler
		login  string // the path of the first request with a secret
		exit   int
		files  map[string]string // of the stage
	}{
		"Infisical": {
			func(*testing.T) http.Handler {
				c := emulated.Config{ClientID: "castle", ClientSecret: "open sesame"}
				return emulated.New(c).Handler()
			}, "/universal-auth/login$", 4, map[string]string{
				"main.tf": `terraform {
  required_providers {
    infisical = { source = "infisical/infisical" }
  }
}
variable "host" { type = string }
provider "infisical" {
  host = var.host
}`,
				"fake.json": `{"resources": {
   "infisical_secret.a": "registry.terraform.io/infisical/infisical"}}`,
			}},
		"Vault": {
			func(*testing.T) http.Handler {
				v := vaults.New()
				v.Token(vaultToken, vaults.Token{Policies: []string{"default", "castle"}})
				v.Policy("castle",
					`path "*" { capabilities = ["create", "read", "update", "delete", "sudo"] }`)
				return v
			}, "/lookup-self$", 4, map[string]string{
				"stage.hcl": `stage {}
preflight "vault_mount" "free" {
  address  = var.host
  kind     = "auth"
  path     = "jwt-blue"
  resource = "vault_jwt_auth_backend.cluster"
  setting  = "path"
  policy   = "policy.hcl"
}`,
				"main.tf": `terraform {
  required_providers {
    vault = { source = "hashicorp/vault" }
  }
}
variable "host" { type = string }
provider "vault" {
  address = var.host
}`,
				"fake.json": `{"resources": {
   "vault_jwt_auth_backend.cluster": "registry.terraform.io/hashicorp/vault"},
 "attributes": {"vault_jwt_auth_backend.cluster": {"path": "jwt-blue"}}}`,
			}},
		"Proxmox": {
			func(t *testing.T) http.Handler {
				p := datacenters.New(datacenters.Config{Token: proxmoxToken, Duration: time.Millisecond})
				t.Cleanup(p.Close)
				return p.Handler()
			}, "/json/(nodes|version)$", 1, map[string]string{
				"stage.hcl": `stage {}
preflight "vm_ids" "free" {
  endpoint  = var.host
  api_token = "` + proxmoxToken + `"
  vm_ids    = { cp-01 = 421 }
  tags      = ["castle", "blue"]
}`,
				"main.tf": `variable "host" { type = string }`,
				"fake.json": `{"resources": {
   "proxmox_virtual_environment_vm.node": "registry.terraform.io/bpg/proxmox"},
 "attributes": {"proxmox_virtual_environment_vm.node": {"vm_id": 421, "node_name": "proxmox"}}}`,
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var strayed atomic.Int32
			elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				strayed.Add(1)
				t.Errorf("%s %s was sent to the other host", r.Method, r.URL.Path)
			}))
			t.Cleanup(elsewhere.Close)
			front := newFront(t, c.system(t))
			w := newRedirectWorld(t, front.Server, c.files)
			if code, out := w.castle("made", "create", "blue"); code != 0 {
				t.Fatalf("create: exit code %d: %s", code, out)
			}
			fresh := 0
			for _, status := range []int{301, 302, 307, 308} {
				for _, paths := range []string{c.login, "."} {
					front.redirects.Store(&redirection{status, regexp.MustCompile(paths), elsewhere.URL})
					ran := w.connected()
					fresh++
					runs := [][]string{{"plan", "blue"}, {"create", "blue"}, {"destroy", "blue", "--yes"}}
					if name != "Proxmox" { // its provider sends no token to another host
						runs = append(runs, []string{"terraform", "blue", "box", "--", "refresh"})
					}
					for _, args := range runs {
						state := "made"
						if args[0] != "destroy" {
							state = fmt.Sprint("new-", fresh)
						}
						code, out := w.castle(state, args...)
						named := strings.Contains(out, "redirects to "+elsewhere.URL)
						if code != c.exit || !named {
							t.Errorf("%d for %s: %v: exit code %d, want %d: %s", status, paths, args, code,
								c.exit, out)
						}
					}
					if w.connected() != ran {
						t.Errorf("%d for %s: Terraform has started the provider", status, paths)
					}
				}
			}
			front.redirects.Store(nil)
			if code, out := w.castle("made", "destroy", "blue", "--yes"); code != 0 {
				t.Errorf("destroy: exit code %d: %s", code, out)
			}
		})
	}
}

// redirectWorld is a repository with one cluster of one stage, platform/box, and a fake Terraform.
type redirectWorld struct {
	t    *testing.T
	dir  string
	vars []string
}

func newRedirectWorld(t *testing.T, server *httptest.Server, files map[string]string) *redirectWorld {
	t.Helper()
	env := &testscript.Env{WorkDir: t.TempDir(), Vars: os.Environ()}
	w := &redirectWorld{t: t, dir: env.WorkDir}
	w.write("ca.pem", string(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	w.write("home/record", "")
	w.write("repo/clusters/blue/lab/cluster.hcl", `stage "box" { source = "platform/box" }`)
	w.write("repo/stages/platform/box/stage.hcl", "stage {}")
	for name, text := range files {
		w.write("repo/stages/platform/box/"+name, text)
	}
	if err := fakeOnPath(env); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"HOME": filepath.Join(w.dir, "home"), "SSL_CERT_FILE": filepath.Join(w.dir, "ca.pem"),
		"TF_VAR_host": server.URL, "VAULT_TOKEN": vaultToken, "GORACE": race,
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID":     "castle",
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET": "open sesame",
	} {
		env.Setenv(name, value)
	}
	w.vars = env.Vars
	return w
}

func (w *redirectWorld) write(name, text string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600))
	if err != nil {
		w.t.Fatal(err)
	}
}

// castle runs castle with a state directory, and returns its exit code and all that it prints.
func (w *redirectWorld) castle(state string, args ...string) (code int, out string) {
	w.t.Helper()
	c := exec.CommandContext(w.t.Context(), "castle", args...)
	c.Dir = filepath.Join(w.dir, "repo")
	c.Env = append(slices.Clone(w.vars), "CASTLE_STATE_DIR="+filepath.Join(w.dir, state))
	printed, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(printed)
}

var connecting = regexp.MustCompile(`(?m)^box (plan|apply|import|refresh)$`)

// connected counts the commands so far in which Terraform connects the provider.
func (w *redirectWorld) connected() int {
	w.t.Helper()
	record, err := os.ReadFile(filepath.Join(w.dir, "home/record"))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(connecting.FindAll(record, -1))
}

//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/lab/internal/providers"
)

// TestMain runs the test binary as the providers, too, because Terraform starts it by a provider's
// name. For the test that needs one, the binary also runs the control plane.
func TestMain(m *testing.M) {
	if dir := os.Getenv(controlPlaneDir); dir != "" {
		if err := runControlPlane(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "terraform-provider-") {
		main()
		return
	}
	os.Exit(m.Run())
}

// workdir is one root module with the stand-ins as its only providers.
type workdir struct {
	t   *testing.T
	dir string
	env []string
}

func module(t *testing.T, config string, env ...string) *workdir {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &workdir{t: t, dir: t.TempDir()}
	mirror := t.TempDir()
	for _, p := range providers.Providers() {
		dir := filepath.Join(mirror, "registry.terraform.io", p.Source, p.Version, "linux_amd64")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, filepath.Join(dir, p.Binary())); err != nil {
			t.Fatal(err)
		}
	}
	rc := filepath.Join(mirror, "terraform.rc")
	w.write(rc, `provider_installation {
  filesystem_mirror { path = "`+mirror+`" }
}`)
	w.env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "TF_CLI_CONFIG_FILE=" + rc,
		"CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1"}, env...)
	w.write(filepath.Join(w.dir, "main.tf"), config)
	w.must("init")
	return w
}

func (w *workdir) write(path, content string) {
	w.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// run returns Terraform's exit code and its output, without colours.
func (w *workdir) run(args ...string) (int, string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "terraform", append(args, "-no-color")...)
	cmd.Dir, cmd.Env = w.dir, w.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil {
		w.t.Fatalf("terraform %s: %v", args[0], err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func (w *workdir) must(args ...string) string {
	w.t.Helper()
	code, out := w.run(args...)
	if code != 0 {
		w.t.Fatalf("terraform %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

func (w *workdir) apply() string { w.t.Helper(); return w.must("apply", "-auto-approve") }

// unchanged fails unless a plan has nothing to do.
func (w *workdir) unchanged() {
	w.t.Helper()
	if code, out := w.run("plan", "-detailed-exitcode"); code != 0 {
		w.t.Fatalf("a second plan is not empty: exit %d\n%s", code, out)
	}
}

func (w *workdir) outputs() map[string]any {
	w.t.Helper()
	var all map[string]struct{ Value any }
	if err := json.Unmarshal([]byte(w.must("output", "-json")), &all); err != nil {
		w.t.Fatal(err)
	}
	values := map[string]any{}
	for name, o := range all {
		values[name] = o.Value
	}
	return values
}

func TestRandomAndTLSStayAsTheyAreUntilAnArgumentChanges(t *testing.T) {
	const config = `
terraform {
  required_providers {
    random = { source = "hashicorp/random", version = "~> 3.9" }
    tls    = { source = "hashicorp/tls", version = "~> 4.2" }
  }
}
variable "length" { default = 32 }
resource "random_password" "p" {
  length  = var.length
  special = false
}
resource "tls_private_key" "k" {
  for_each  = { RSA = 2048, ECDSA = null, ED25519 = null }
  algorithm = each.key
  rsa_bits  = each.value
}
output "password" {
  value     = random_password.p.result
  sensitive = true
}
output "public" { value = tls_private_key.k["ED25519"].public_key_openssh }
`
	w := module(t, config)
	w.apply()
	w.unchanged()
	before := w.outputs()
	if password := before["password"].(string); len(password) != 32 ||
		strings.ContainsAny(password, "!@#$%&*()-_=+[]{}<>:?") {
		t.Errorf("a password of 32 letters and digits: got %d characters", len(password))
	}
	if !strings.HasPrefix(before["public"].(string), "ssh-ed25519 ") {
		t.Errorf("public key: %v", before["public"])
	}
	out := w.must("apply", "-auto-approve", "-var=length=40")
	if !strings.Contains(out, "1 added, 0 changed, 1 destroyed") ||
		len(w.outputs()["password"].(string)) != 40 {
		t.Errorf("a new length should replace the password alone:\n%s", out)
	}
	w.must("destroy", "-auto-approve")
	if left := w.must("state", "list"); strings.TrimSpace(left) != "" {
		t.Errorf("left after destroy: %s", left)
	}
}

const infisicalConfig = `
terraform {
  required_providers { infisical = { source = "infisical/infisical", version = "~> 0.19" } }
}
variable "host" {}
variable "value" { default = "kubeconfig one" }
provider "infisical" {
  host = var.host
  auth = { universal = {} }
}
data "infisical_secrets" "all" {
  workspace_id = "p1"
  env_slug     = "prod"
  folder_path  = "/blue"
}
resource "infisical_secret" "k" {
  workspace_id = "p1"
  env_slug     = "prod"
  folder_path  = "/blue"
  name         = "KUBECONFIG_CONTENT"
  value        = var.value
}
output "token" {
  value     = data.infisical_secrets.all.secrets["GITHUB_TOKEN"].value
  sensitive = true
}
`

func infisicalServer(t *testing.T) (*infisical.Server, infisical.Folder, []string) {
	t.Helper()
	server := infisical.New(infisical.Config{ClientID: "machine", ClientSecret: "open sesame"})
	listener := httptest.NewTLSServer(server.Handler())
	t.Cleanup(listener.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listener.Certificate().Raw})
	if err := os.WriteFile(ca, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	folder := infisical.Folder{Workspace: "p1", Environment: "prod", Path: "/blue"}
	server.SetSecret(folder, "GITHUB_TOKEN", "a token")
	return server, folder, []string{"SSL_CERT_FILE=" + ca, "TF_VAR_host=" + listener.URL,
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=machine", "INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=open sesame"}
}

func value(server *infisical.Server, key string) string {
	for _, s := range server.Secrets() {
		if s.Key == key {
			return s.Value
		}
	}
	return "(none)"
}

func TestInfisicalSecretsAreReadMadeChangedAndDeleted(t *testing.T) {
	server, folder, env := infisicalServer(t)
	w := module(t, infisicalConfig, env...)
	w.apply()
	w.unchanged()
	if got := w.outputs()["token"]; got != "a token" {
		t.Errorf("token: %v", got)
	}
	if got := value(server, "KUBECONFIG_CONTENT"); got != "kubeconfig one" {
		t.Errorf("made: %q", got)
	}
	w.must("apply", "-auto-approve", "-var=value=two")
	if got := value(server, "KUBECONFIG_CONTENT"); got != "two" {
		t.Errorf("changed: %q", got)
	}
	server.Remove(folder, "KUBECONFIG_CONTENT")
	if out := w.apply(); !strings.Contains(out, "1 added") {
		t.Errorf("a secret that was deleted behind Terraform's back is made again:\n%s", out)
	}
	w.must("destroy", "-auto-approve")
	if got := value(server, "KUBECONFIG_CONTENT"); got != "(none)" {
		t.Errorf("after destroy: %q", got)
	}
}

func TestAnExistingInfisicalSecretMustBeImported(t *testing.T) {
	server, folder, env := infisicalServer(t)
	server.SetSecret(folder, "KUBECONFIG_CONTENT", "of an earlier cluster")
	w := module(t, infisicalConfig, env...)
	code, out := w.run("apply", "-auto-approve")
	if code == 0 || !strings.Contains(out, "Error creating secret") ||
		!strings.Contains(out, "already exist") {
		t.Fatalf("apply over an existing secret: exit %d\n%s", code, out)
	}
	code, out = w.run("import", "infisical_secret.k", "p1:prod:/blue:NOWHERE")
	if code == 0 || !strings.Contains(out, "Secret not found") {
		t.Errorf("import of what does not exist: exit %d\n%s", code, out)
	}
	w.must("import", "infisical_secret.k", "p1:prod:/blue:KUBECONFIG_CONTENT")
	if out := w.apply(); !strings.Contains(out, "0 added, 1 changed, 0 destroyed") {
		t.Errorf("apply after import:\n%s", out)
	}
	w.unchanged()
	if got := value(server, "KUBECONFIG_CONTENT"); got != "kubeconfig one" {
		t.Errorf("value: %q", got)
	}
}

func TestWrongInfisicalCredentialsFailEveryOperation(t *testing.T) {
	_, _, env := infisicalServer(t)
	w := module(t, infisicalConfig, append(env, "INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=guess")...)
	code, out := w.run("plan")
	if code == 0 || !strings.Contains(out, "Unable to Create Infisical API Client") ||
		!strings.Contains(out, "Invalid credentials") {
		t.Errorf("plan: exit %d\n%s", code, out)
	}
}

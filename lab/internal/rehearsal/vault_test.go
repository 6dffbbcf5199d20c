package rehearsal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInspectFindsTheVaultThatAClusterNames(t *testing.T) {
	repository := t.TempDir()
	dir := filepath.Join(repository, "clusters", "red", "lab")
	check(t, os.MkdirAll(dir, 0o700))
	check(t,
		os.WriteFile(filepath.Join(dir, "cluster.hcl"),
			[]byte(`stage "vault" { source = "secrets/vault" }`), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "terraform.tfvars"),
		[]byte("vault_address = \"https://vault.example.org:8200\"\nvault_kv_mount = \"kv\"\n"), 0o600))
	s, err := inspect(repository, Options{Cluster: "red"})
	check(t, err)
	if s.Vault == nil || s.VaultAddress != "https://vault.example.org:8200" ||
		!slices.Contains(s.Network.Hosts, "vault.example.org") {
		t.Fatalf("%+v, %s, %v", s.Vault, s.VaultAddress, s.Network.Hosts)
	}
	if s.Vault.Mount != "kv" || s.Vault.Path != "ephemeral-castle/red/lab" ||
		!strings.Contains(s.Vault.Policy, `path "kv/data/ephemeral-castle/*"`) {
		t.Errorf("%+v", s.Vault)
	}
	if !slices.Contains(s.Secrets, "TAILSCALE_OAUTH_CLIENT_ID") {
		t.Errorf("secrets: %v", s.Secrets)
	}
	blue, err := inspect("../../..", Options{Cluster: "blue"})
	check(t, err)
	if blue.Vault != nil {
		t.Errorf("blue has a Vault: %+v", blue.Vault)
	}
}

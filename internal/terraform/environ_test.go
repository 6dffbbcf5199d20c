package terraform

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestEnvironmentHasOnlyAllowedVariables(t *testing.T) {
	config := filepath.Join(t.TempDir(), "terraformrc")
	writeFile(t, config, "")
	r := &Root{Dir: "/stage", Run: "run-1", Env: []string{
		"PATH=/bin", "HOME=/home/me", "TMPDIR=/tmp", "https_proxy=http://127.0.0.1:1", "NO_PROXY=x",
		"SSL_CERT_FILE=/ca.pem",
		"TF_CLI_CONFIG_FILE=" + config, "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=i", "VAULT_ADDR=v",
		"PROXMOX_VE_ENDPOINT=p",
		"KUBECONFIG=/k", "KUBE_HOST=h", "TF_VAR_x=1", "TF_CLI_ARGS=-lock=false", "TF_CLI_ARGS_apply=x",
		"TF_LOG=TRACE",
		"TF_WORKSPACE=w", "TF_DATA_DIR=/elsewhere", "CASTLE_RUN=outer", "AWS_SECRET_ACCESS_KEY=a",
		"SSL_CERT_FILE_X=y", "CASTLE_AGE_IDENTITY=AGE-SECRET-KEY-1", "CASTLE_AGE_IDENTITY_FILE=/key",
		"CASTLE_STATE_STORE=s3://castle", "CASTLE_STATE_LOCK_TIME=1m",
	}}
	want := []string{
		"CASTLE_RUN=run-1", "CHECKPOINT_DISABLE=1", "HOME=/home/me", "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=i",
		"NO_PROXY=x",
		"PATH=/bin", "PROXMOX_VE_ENDPOINT=p", "SSL_CERT_FILE=/ca.pem", "TF_CLI_CONFIG_FILE=" + config,
		"TF_DATA_DIR=/stage/.terraform",
		"TMPDIR=/tmp", "VAULT_ADDR=v", "https_proxy=http://127.0.0.1:1",
	}
	if got := entries(r.environment()); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestAMissingConfigurationFileIsLeftOut(t *testing.T) {
	r := &Root{Env: []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(t.TempDir(), "none")}}
	if got, ok := r.environment()["TF_CLI_CONFIG_FILE"]; ok {
		t.Errorf("it is named: %s", got)
	}
}

func TestProviderEnvHasOnlyProviderVariables(t *testing.T) {
	got := ProviderEnv([]string{"VAULT_ADDR=v", "PATH=/bin", "HOME=/h", "HTTPS_PROXY=p", "KUBE_HOST=h"})
	if want := []string{"HTTPS_PROXY=p", "VAULT_ADDR=v"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

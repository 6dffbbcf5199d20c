package applied

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/config"
)

func TestEnvironmentVariablesThatMakeAStageStale(t *testing.T) {
	stage := func(providers ...string) *config.Stage {
		s := &config.Stage{Providers: map[string]string{}}
		for _, p := range providers {
			s.Providers[p] = "registry.terraform.io/somebody/" + p
		}
		return s
	}
	for _, c := range []struct {
		variable string
		stage    *config.Stage
		want     bool
	}{
		{"INFISICAL_HOST", stage("infisical", "helm"), true},
		{"INFISICAL_HOST", stage("helm"), false},
		{"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET", stage("infisical"), false},
		{"PROXMOX_VE_API_TOKEN", stage("proxmox"), false},
		{"PROXMOX_VE_ENDPOINT", stage("proxmox"), true},
		{"VAULT_ADDR", stage("vault"), true},
		{"VAULT_CACERT", stage("vault"), false},
		{"PROXMOX_VE_SSH_AUTH_SOCK", stage("proxmox"), false},
		{"SSL_CERT_FILE", stage("helm"), false},
		{"HTTPS_PROXY", stage("helm"), false},
	} {
		if got := matters(c.stage, c.variable); got != c.want {
			t.Errorf("%s for a stage with %v: %v, want %v", c.variable, c.stage.Providers, got, c.want)
		}
	}
}

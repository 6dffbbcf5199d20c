package rehearsal

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
)

// copyVariable names the copy of the repository, which a command may edit.
const copyVariable = "CASTLE_LAB_REPOSITORY"

// collects is GOGC for everything inside: short processes with small heaps, in which Go's default collects
// every few megabytes. It takes a sixth less of the processor.
const collects = "400"

// environ returns the environment inside: the user's variables for the terminal, the language and
// Terraform, and none that would lead to the real world.
func (p *plan) environ() []string {
	keep := []string{"TERM", "LANG", "LC_ALL", "COLORTERM", "NO_COLOR", "TZ", "COLUMNS", "LINES", "SHELL",
		"USER", "LOGNAME", "EDITOR", "CASTLE_TERRAFORM"}
	var all []string
	for _, kv := range p.Options.Environ {
		name, _, _ := strings.Cut(kv, "=")
		if name == localVariable || name == datacenter.RoleSecret {
			continue // the real ones
		}
		if slices.Contains(keep, name) || strings.HasPrefix(name, "TF_VAR_") || name == "TF_LOG" {
			all = append(all, kv)
		}
	}
	bundle, home := p.path(bundleName), p.path("home")
	state := p.path("state", p.Survey.Name, p.Survey.Platform)
	own := map[string]string{
		"PATH": p.path("bin") + ":" + process.Getenv(p.Options.Environ, "PATH"),
		"HOME": home, "XDG_CACHE_HOME": filepath.Join(home, ".cache"),
		"XDG_CONFIG_HOME":    filepath.Join(home, ".config"),
		"XDG_DATA_HOME":      filepath.Join(home, ".local", "share"),
		"XDG_STATE_HOME":     filepath.Join(home, ".local", "state"),
		"TMPDIR":             p.path("tmp"),
		"CASTLE_STATE_DIR":   p.path("state"),
		"CASTLE_STATE_STORE": "local", // never the store in castle.hcl
		copyVariable:         p.Repository,
		"KUBECONFIG":         filepath.Join(state, "kubeconfig"),
		"TALOSCONFIG":        filepath.Join(state, "talosconfig"),
		"TF_CLI_CONFIG_FILE": p.path("terraformrc"), "CHECKPOINT_DISABLE": "1",
		"GOGC": cmp.Or(process.Getenv(p.Options.Environ, "GOGC"), collects),
		// Go, OpenSSL, curl, Git and Python each have a name for it.
		"SSL_CERT_FILE": bundle, "SSL_CERT_DIR": p.path("covered"), "CURL_CA_BUNDLE": bundle,
		"GIT_SSL_CAINFO": bundle, "REQUESTS_CA_BUNDLE": bundle,
		"PROXMOX_VE_ENDPOINT": p.Survey.Proxmox, "INFISICAL_HOST": p.Survey.Infisical,
		"VAULT_ADDR":  p.Survey.VaultAddress,
		localVariable: p.Survey.LocalSecrets,
	}
	if p.Survey.Cloud != nil {
		own["HCLOUD_ENDPOINT"] = p.Survey.Cloud.Endpoint
	}
	for name, value := range own {
		if value != "" {
			all = append(all, name+"="+value)
		}
	}
	slices.Sort(all)
	return all
}

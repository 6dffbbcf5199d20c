package terraform

import (
	"os"
	"slices"
	"strings"
)

// passed reports whether Terraform and its providers may see a variable of the
// caller's environment. KUBE* is not among them: a stray KUBE_HOST overrides the
// config_path of the providers that castle wires to the cluster. Nor are
// TF_VAR_*, which castle has resolved already, and TF_CLI_ARGS*.
func passed(name string) bool {
	switch name {
	case "PATH", "HOME", "TMPDIR", "TF_CLI_CONFIG_FILE":
		return true
	}
	return providerVariable(name)
}

// providerVariable reports whether a variable changes what a provider does:
// where it connects, through what and as whom.
func providerVariable(name string) bool {
	switch name {
	case "SSL_CERT_FILE", "SSL_CERT_DIR":
		return true
	}
	switch strings.ToUpper(name) {
	case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY":
		return true
	}
	return strings.HasPrefix(name, "INFISICAL_") || strings.HasPrefix(name, "VAULT_") || strings.HasPrefix(name, "PROXMOX_VE_")
}

// ProviderEnv returns those entries of environ that change what a provider does,
// sorted. They belong to what a stage depends on.
func ProviderEnv(environ []string) []string {
	var seen []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if providerVariable(name) {
			seen = append(seen, entry)
		}
	}
	slices.Sort(seen)
	return seen
}

// environment is what every command of this root gets.
func (r *Root) environment() map[string]string {
	env := filter(r.Env)
	env["CASTLE_RUN"] = r.Run
	env["TF_DATA_DIR"] = r.dataDir()
	return env
}

// filter keeps what is allow-listed and adds what is always so.
func filter(environ []string) map[string]string {
	env := map[string]string{"CHECKPOINT_DISABLE": "1"}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if passed(name) {
			env[name] = value
		}
	}
	// Terraform only warns about a file that is not there, but it warns in the
	// output of every command.
	if file, ok := env["TF_CLI_CONFIG_FILE"]; ok {
		if _, err := os.Stat(file); err != nil {
			delete(env, "TF_CLI_CONFIG_FILE")
		}
	}
	return env
}

func entries(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}

package terraform

import (
	"os"
	"slices"
	"strings"
)

// allowed reports whether Terraform and its providers get a variable of the caller's
// environment. KUBE* is not among them: a stray KUBE_HOST overrides the config_path of
// the providers that castle configures. Nor are TF_CLI_ARGS* and TF_VAR_*, which
// castle has resolved already.
func allowed(name string) bool {
	switch name {
	case "PATH", "HOME", "TMPDIR", "TF_CLI_CONFIG_FILE":
		return true
	}
	return providerVariable(name)
}

// providerVariable reports whether a variable changes where a provider connects,
// through which proxy or as which user.
func providerVariable(name string) bool {
	switch name {
	case "SSL_CERT_FILE", "SSL_CERT_DIR":
		return true
	}
	switch strings.ToUpper(name) {
	case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY":
		return true
	}
	for _, prefix := range []string{"INFISICAL_", "VAULT_", "PROXMOX_VE_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// ProviderEnv returns the sorted entries of environ that providers read. They belong
// to a stage's fingerprint.
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

// environment returns the environment of every command of this root.
func (r *Root) environment() map[string]string {
	env := filter(r.Env)
	env["CASTLE_RUN"] = r.Run
	env["TF_DATA_DIR"] = r.dataDir()
	return env
}

// filter keeps the allowed variables and adds CHECKPOINT_DISABLE.
func filter(environ []string) map[string]string {
	env := map[string]string{"CHECKPOINT_DISABLE": "1"}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if allowed(name) {
			env[name] = value
		}
	}
	// Terraform warns about a missing file in the output of every command.
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

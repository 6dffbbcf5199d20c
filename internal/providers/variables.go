package providers

import "strings"

// variables are the prefixes of the environment variables by which a provider finds its system, by its name.
var variables = map[string]string{"infisical": "INFISICAL_", "proxmox": "PROXMOX_VE_", "vault": "VAULT_"}

// ReaderOf returns the name of the provider that reads an environment variable; empty if none does.
func ReaderOf(variable string) string {
	for name, prefix := range variables {
		if strings.HasPrefix(variable, prefix) {
			return name
		}
	}
	return ""
}

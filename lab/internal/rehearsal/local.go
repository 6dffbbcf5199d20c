package rehearsal

import (
	"encoding/json"
	"io/fs"

	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
	"github.com/ephemeral-castle/castle/lab/internal/sources"
)

// localSecrets is the variable of secrets/local. Its values are the user's real secrets, if any. A
// rehearsal generates its own and passes them in the environment, where they take precedence.
const localSecrets = "local_secrets"

const localVariable = "TF_VAR_" + localSecrets

// localSecret is one of the values that stand in for those of secrets.tfvars; empty without any.
func localSecret(values, name string) string {
	secrets := map[string]string{}
	_ = json.Unmarshal([]byte(values), &secrets) //nolint:errcheck // localStandIns has made it
	return secrets[name]
}

// localStandIns are values for all the secrets that a module names, as the environment
// has them, and the API token that Proxmox has to let in.
func localStandIns(module fs.FS, keys sources.Keys) (values, proxmoxToken string, err error) {
	names, err := secretNames(module)
	if err != nil {
		return "", "", err
	}
	secrets := map[string]string{}
	for _, name := range names {
		if secrets[name], err = datacenter.StandIn(name, keys); err != nil {
			return "", "", err
		}
	}
	secrets["PROXMOX_TOKEN_ID"] = "castle@pve!castle"
	text, err := json.Marshal(secrets)
	return string(text), secrets["PROXMOX_TOKEN_ID"] + "=" + secrets["PROXMOX_TOKEN_SECRET"], err
}

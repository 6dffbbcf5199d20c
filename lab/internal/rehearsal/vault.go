package rehearsal

import (
	"cmp"
	"io/fs"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
)

const (
	// vaultPolicy is the policy of castle's token, as the stage brings it, written
	// for the mount vaultMount.
	vaultPolicy = "vault-policy.hcl"
	vaultMount  = "secret"
)

// landing finds what the configuration expects of a Vault: that of the stage
// that reads its secrets there.
func (s *survey) landing(stages []*config.Stage, inputs []map[string]cty.Value) error {
	for i, stage := range stages {
		text := func(name string) (found string) {
			each(name, inputs[i][name], func(_, text string) { found = text })
			return found
		}
		if _, reads := stage.Variables["vault_kv_path"]; !reads {
			continue
		}
		policy, err := fs.ReadFile(stage.Module, vaultPolicy)
		if err != nil {
			return err
		}
		mount := cmp.Or(text("vault_kv_mount"), vaultMount)
		s.Vault = &datacenter.Vault{
			Mount: mount, Path: text("vault_kv_path"),
			Role: text("vault_role_id"), RoleMount: text("vault_role_mount"),
			Policy: strings.ReplaceAll(string(policy), `"`+vaultMount+`/`, `"`+mount+`/`),
		}
	}
	return nil
}

package rehearsal

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
)

const (
	// vaultPolicy is what castle's token may do for a stage, as the stage brings it,
	// written for the KV mount vaultMount.
	vaultPolicy = "vault-policy.hcl"
	vaultMount  = "secret"
)

// landing finds what the configuration expects of a Vault: that of the stage
// that reads its secrets there, and for castle's token what all stages ask for.
func (s *survey) landing(stages []*config.Stage, inputs []map[string]cty.Value) error {
	var policies []string
	for i, stage := range stages {
		text := func(name string) (found string) {
			each(name, inputs[i][name], func(_, text string) { found = text })
			return found
		}
		policy, err := fs.ReadFile(stage.Module, vaultPolicy)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		mount := cmp.Or(text("vault_kv_mount"), vaultMount)
		policies = append(policies, strings.ReplaceAll(string(policy), `"`+vaultMount+`/`, `"`+mount+`/`))
		if _, reads := stage.Variables["vault_kv_path"]; reads {
			s.Vault = &datacenter.Vault{
				Mount: mount, Path: text("vault_kv_path"),
				Role: text("vault_role_id"), RoleMount: text("vault_role_mount"),
			}
		}
	}
	if s.Vault != nil {
		s.Vault.Policy = strings.Join(policies, "\n")
	}
	return nil
}

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
	// vaultPolicy is the file in a stage with the permissions of castle's token, written for the KV
	// mount vaultMount.
	vaultPolicy = "vault-policy.hcl"
	vaultMount  = "secret"
)

// landing finds the Vault that the configuration expects: that of the stage that reads its secrets
// there. castle's token gets the permissions that all stages need.
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

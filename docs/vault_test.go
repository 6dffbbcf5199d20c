package docs_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/stages"
)

func TestVaultMdShowsThePolicyOfTheStage(t *testing.T) {
	policy, err := fs.ReadFile(stages.Library, "secrets/vault/vault-policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("vault.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?ms)^path ".*?^}$`).FindAllString(string(policy), -1)
	if len(blocks) == 0 {
		t.Fatal("the policy is empty")
	}
	for _, block := range blocks {
		if !strings.Contains(string(text), block) {
			t.Errorf("vault.md lacks\n%s", block)
		}
	}
}

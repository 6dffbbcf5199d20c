package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/stages"
)

var policyBlock = regexp.MustCompile(`(?ms)^path ".*?^}$`)

func TestVaultMdShowsThePolicyOfTheStage(t *testing.T) {
	policy, err := fs.ReadFile(stages.Library, "secrets/vault/vault-policy.hcl")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("vault.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := policyBlock.FindAllString(string(policy), -1)
	if len(blocks) == 0 {
		t.Fatal("the policy is empty")
	}
	for _, block := range blocks {
		if !strings.Contains(string(text), block) {
			t.Errorf("vault.md lacks\n%s", block)
		}
	}
}

// TestVaultMdNamesWhatTheDoctorTells holds its table against the findings.
func TestVaultMdNamesWhatTheDoctorTells(t *testing.T) {
	names := map[string]map[string]bool{}
	for path, expression := range map[string]string{"vault.md": "`(vault\\.[a-z]+)`,",
		"../internal/doctor/secrets.go": `"(vault\.[a-z]+)"`} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names[path] = map[string]bool{}
		for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(string(text), -1) {
			names[path][m[1]] = true
		}
	}
	documented, coded := names["vault.md"], names["../internal/doctor/secrets.go"]
	if len(coded) == 0 || !maps.Equal(documented, coded) {
		t.Errorf("vault.md has %v, the doctor has %v", documented, coded)
	}
}

// TestVaultMdLeadsToEveryPolicy: a stage that needs one is in the table.
func TestVaultMdLeadsToEveryPolicy(t *testing.T) {
	text, err := os.ReadFile("vault.md")
	if err != nil {
		t.Fatal(err)
	}
	policies, err := fs.Glob(stages.Library, "*/*/vault-policy.hcl")
	if err != nil || len(policies) < 3 {
		t.Fatalf("policies: %v, %v", policies, err)
	}
	for _, policy := range policies {
		stage := strings.TrimSuffix(policy, "/vault-policy.hcl")
		if !regexp.MustCompile("(?m)^\\| `" + stage + "` \\|.*\\(\\.\\./stages/" + policy +
			"\\) \\|$").Match(text) {
			t.Errorf("vault.md has no row for %s and its policy", stage)
		}
	}
}

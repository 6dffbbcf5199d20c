package importer

import (
	"bytes"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
)

// inCluster are the providers of objects in a cluster. castle configures the first two.
var inCluster = []string{"kubernetes", "helm", "kubectl", "flux"}

// generate takes over a file that Terragrunt writes into the module, without what castle itself writes.
func (t *terragrunt) generate(u *unit, b *hclsyntax.Block) {
	name, text := t.string(u, b.Body, "path"), t.string(u, b.Body, "contents")
	f, diags := hclwrite.ParseConfig([]byte(text), name, hcl.InitialPos)
	if diags.HasErrors() || filepath.Ext(name) != ".tf" || filepath.Base(name) != name {
		t.gap(b.Range(), "generate", "writes no file of Terraform that castle knows", "write it in the stage")
		return
	}
	var own []string
	for _, block := range f.Body().Blocks() {
		switch label := strings.Join(block.Labels(), "_"); block.Type() {
		case "resource", "data":
			kind, _, _ := strings.Cut(label, "_")
			u.providers = append(u.providers, kind)
		case "variable":
			u.declared = append(u.declared, label)
		case "provider":
			if slices.Contains(inCluster[:2], label) {
				own = append(own, "provider "+label)
				f.Body().RemoveBlock(block)
			}
		case "terraform":
			for _, inner := range block.Body().Blocks() {
				if inner.Type() == "backend" || inner.Type() == "cloud" {
					own = append(own, inner.Type())
					block.Body().RemoveBlock(inner)
				}
			}
		}
	}
	if len(own) > 0 {
		t.gap(b.Range(), "generate", "has what castle writes itself: "+strings.Join(own, ", "),
			"set state in castle.hcl to share states; docs/stages.md of castle explains the providers")
	}
	u.generated[name] = f
}

// files are the generated files without the providers that a module does not use: an early stage cannot have
// those of a later one. What the modules use that it calls is not known.
func (u *unit) files(module *tfconfig.Module, folder string) map[string][]byte {
	unused := func(provider string) bool {
		return module != nil && len(module.ModuleCalls) == 0 && module.RequiredProviders[provider] == nil &&
			!slices.Contains(u.providers, provider)
	}
	all := map[string][]byte{}
	for name, f := range u.generated {
		for _, block := range f.Body().Blocks() {
			if block.Type() == "provider" && unused(strings.Join(block.Labels(), "_")) {
				f.Body().RemoveBlock(block)
			}
			for _, inner := range block.Body().Blocks() {
				for provider := range inner.Body().Attributes() {
					if inner.Type() == "required_providers" && unused(provider) {
						inner.Body().RemoveAttribute(provider)
					}
				}
			}
		}
		if text := bytes.TrimSpace(hclwrite.Format(f.Bytes())); len(text) > 0 {
			all[path.Join(folder, name)] = append(text, '\n')
		}
	}
	return all
}

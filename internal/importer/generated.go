package importer

import (
	"bytes"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// generated is a file that Terragrunt writes into the module.
type generated struct {
	name string
	file *hclwrite.File
	skip bool // where the module has the file
}

// generate takes over a generated file, without what castle itself writes.
func (t *terragrunt) generate(u *unit, b *hclsyntax.Block) {
	label := strings.Join(b.Labels, "")
	delete(u.generated, label) // of an include
	if off := b.Body.Attributes["disable"]; off != nil {
		if v, is := t.value(u, off); !is || v.RawEquals(cty.True) {
			return
		}
	}
	name, text := t.string(u, b.Body, "path"), t.string(u, b.Body, "contents")
	if filepath.Dir(name) == u.dir {
		name = filepath.Base(name)
	}
	f, diags := hclwrite.ParseConfig([]byte(text), name, hcl.InitialPos)
	if diags.HasErrors() || filepath.Ext(name) != ".tf" || filepath.Base(name) != name {
		t.gap(b.Range(), "generate", "writes no file of Terraform into the module", "write it in the stage")
		return
	}
	var own []string
	for _, block := range f.Body().Blocks() {
		of := strings.Join(block.Labels(), "")
		if block.Type() == "provider" && (of == "kubernetes" || of == "helm") {
			own = append(own, "provider "+of)
			f.Body().RemoveBlock(block)
		}
		for _, inner := range block.Body().Blocks() {
			if block.Type() == "terraform" && (inner.Type() == "backend" || inner.Type() == "cloud") {
				own = append(own, inner.Type())
				block.Body().RemoveBlock(inner)
			}
		}
	}
	if len(own) > 0 {
		t.gap(b.Range(), "generate", "has what castle writes itself: "+strings.Join(own, ", "),
			"set state in castle.hcl to share states; docs/stages.md of castle explains the providers")
	}
	if name := writtenSecret(text); name != "" {
		t.gap(b.Range(), "generate", "has "+name+", which "+isSecret, secretFix)
		return
	}
	if bytes.Contains(f.Bytes(), []byte(t.top)) {
		t.gap(b.Range(), "generate", "has a path in the old repository", "correct it in the stage")
	}
	u.generated[label] = generated{name, f, t.string(u, b.Body, "if_exists") == "skip"}
}

// text is the Terraform of a unit, without providers that are generated.
func (t *terragrunt) text(u *unit) string {
	var text []byte
	if dir, module := t.module(u); module != nil {
		names, _ := filepath.Glob(filepath.Join(dir, "*.t*f*")) // .tf, .tf.json and .tofu
		for _, name := range names {
			content, _ := os.ReadFile(name) // the copy reports it
			text = append(text, content...)
		}
	}
	for _, g := range u.generated {
		for _, block := range g.file.Body().Blocks() {
			if !slices.Contains([]string{"provider", "terraform"}, block.Type()) {
				text = append(text, block.BuildTokens(nil).Bytes()...)
			}
		}
	}
	return string(text)
}

var moduleCall = regexp.MustCompile(`(?m)^\s*module\s+"`)

// files are the generated files without the providers that the unit does not name: an early stage cannot have
// those of a later one. What the modules use that it calls is not known.
func (t *terragrunt) files(u *unit, folder string) map[string][]byte {
	dir, module := t.module(u)
	text := t.text(u)
	unused := func(provider string) bool {
		return module != nil && !moduleCall.MatchString(text) &&
			!regexp.MustCompile(`\b`+regexp.QuoteMeta(provider)+`(_|\b)`).MatchString(text)
	}
	all := map[string][]byte{}
	for _, label := range slices.Sorted(maps.Keys(u.generated)) {
		g := u.generated[label]
		for _, block := range g.file.Body().Blocks() {
			if block.Type() == "provider" && unused(strings.Join(block.Labels(), "")) {
				g.file.Body().RemoveBlock(block)
			}
			for _, inner := range block.Body().Blocks() {
				for provider := range inner.Body().Attributes() {
					if inner.Type() == "required_providers" && unused(provider) {
						inner.Body().RemoveAttribute(provider)
					}
				}
			}
		}
		_, err := os.Stat(filepath.Join(dir, g.name))
		text := bytes.TrimSpace(hclwrite.Format(g.file.Bytes()))
		if len(text) > 0 && !(g.skip && err == nil) {
			all[path.Join(folder, g.name)] = append(text, '\n')
		}
	}
	return all
}

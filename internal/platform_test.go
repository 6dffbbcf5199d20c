package internal_test

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// mostReferences is how often code outside of a platform's folder may name something in it: where castle
// lists its platforms, and where a command is about one.
const mostReferences = 15

// A platform is a plug: the core asks interfaces, and does not know which platforms there are.
func TestTheCoreKnowsNoPlatform(t *testing.T) {
	core := words(`internal/gate internal/cluster internal/run internal/terraform internal/state`)
	references := 0
	for _, s := range parsed(t) {
		below := func(dir string) bool { return s.dir == dir || strings.HasPrefix(s.dir, dir+"/") }
		if s.test || below("internal/platform/proxmox") || below("internal/emulator") || below("lab") {
			continue
		}
		inCore := false
		for dir := range core {
			inCore = inCore || below(dir)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "proxmox" && imports(s.file,
					"platform/proxmox") {
					references++
				}
			case *ast.BasicLit:
				if inCore && n.Kind == token.STRING && strings.Contains(strings.ToLower(n.Value), "proxmox") {
					t.Errorf("%s: %s names a platform", s.path, n.Value)
				}
			}
			return true
		})
	}
	if references > mostReferences {
		t.Errorf("%d references to Proxmox outside of its folder, at most %d", references, mostReferences)
	}
	t.Logf("%d references to Proxmox outside of its folder", references)
}

// imports reports whether a file imports a package whose path ends so.
func imports(file *ast.File, path string) bool {
	for _, i := range file.Imports {
		if strings.HasSuffix(strings.Trim(i.Path.Value, `"`), path) {
			return true
		}
	}
	return false
}

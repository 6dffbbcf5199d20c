package internal_test

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// mostReferences is how often code outside of a platform's folder may name something in it: where castle
// lists its platforms, and where a command is about one.
const mostReferences = 15

// A platform is a plug: the core asks interfaces, and does not know which platforms there are.
func TestTheCoreKnowsNoPlatform(t *testing.T) {
	entries, err := os.ReadDir("platform")
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "all" {
			platforms = append(platforms, e.Name())
		}
	}
	if !slices.Contains(platforms, "proxmox") {
		t.Fatalf("platforms: %q", platforms)
	}
	core := words(`internal/gate internal/cluster internal/run internal/terraform internal/state`)
	references := map[string]int{}
	for _, s := range parsed(t) {
		below := func(dir string) bool { return s.dir == dir || strings.HasPrefix(s.dir, dir+"/") }
		if s.test || below("internal/emulator") || below("lab") {
			continue
		}
		inCore := false
		for dir := range core {
			inCore = inCore || below(dir)
		}
		for _, name := range platforms {
			folder := "internal/platform/" + name
			if below(folder) {
				continue
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && strings.HasPrefix(importOf(s.file, x.Name),
						module+folder) {
						references[name]++
					}
				case *ast.BasicLit:
					if inCore && n.Kind == token.STRING && strings.Contains(strings.ToLower(n.Value), name) {
						t.Errorf("%s: %s names a platform", s.path, n.Value)
					}
				}
				return true
			})
		}
	}
	for name, n := range references {
		if n > mostReferences {
			t.Errorf("%d references to %s outside of its folder, at most %d", n, name, mostReferences)
		}
	}
	if len(references) == 0 {
		t.Error("nothing refers to any platform, not even the list of them")
	}
}

// importOf returns the path of the package that a file calls by a name; empty if it is no package.
func importOf(file *ast.File, name string) string {
	for _, i := range file.Imports {
		at := strings.Trim(i.Path.Value, `"`)
		if i.Name != nil && i.Name.Name == name || i.Name == nil && path.Base(at) == name {
			return at
		}
	}
	return ""
}

package internal_test

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// direct are the functions that open, change or remove what a path names, and follow links in it.
var direct = map[string][]string{
	"os": {"Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "DirFS", "Link", "Mkdir",
		"MkdirAll", "MkdirTemp", "Open", "OpenFile", "OpenInRoot", "OpenRoot", "ReadDir", "ReadFile",
		"Remove", "RemoveAll", "Rename", "Stat", "Symlink", "Truncate", "WriteFile"},
	"filepath": {"EvalSymlinks", "Glob", "Walk", "WalkDir"},
}

// elsewhere are their uses in the packages that work below the state directory, with the reason: the path
// lies elsewhere, or the function neither follows a link below it nor waits.
const elsewhere = `
internal/cluster/directory.go os.MkdirAll: the folder of exports
internal/cluster/directory.go os.Remove: exports, and files of a folder that Open has checked
internal/operation/changed/changed.go filepath.EvalSymlinks: the clone of what Flux reads
internal/operation/nuke/clusters.go os.ReadFile: an export
internal/operation/nuke/clusters.go os.Remove: an export
internal/providers/lock.go filepath.EvalSymlinks: a package of a mirror, or in the plugin cache
internal/providers/lock.go os.Stat: likewise
internal/providers/shared.go filepath.Glob: the repository
internal/providers/shared.go os.ReadFile: the repository
internal/run/applied/fingerprint.go os.Stat: a file that an input names
internal/run/review/file.go os.Open: a saved plan
internal/run/review/review.go os.ReadFile: a variable file
internal/run/run.go os.RemoveAll: the folder of sockets
internal/state/dir.go os.MkdirAll: the state directory itself
internal/state/fingerprint.go os.Open: a file that an input names
internal/state/filesystem_linux.go os.ReadFile: the kernel's tables of mounts and of swap
internal/state/root.go os.ReadDir: the state directory itself
internal/state/root.go os.Stat: the state directory itself, and the folders above it
internal/state/stage.go filepath.WalkDir: a folder that castle has just made
internal/state/keys/keys.go os.ReadFile: the user's identity
internal/state/keys/keys.go os.Stat: the user's identity
internal/terraform/exec.go os.Stat: Terraform's configuration
internal/terraform/find.go filepath.Glob: it opens the folder of a lock that castle holds
internal/terraform/find.go os.MkdirTemp: likewise
internal/terraform/find.go os.Stat: Terraform's program, which may be the user's
internal/terraform/init.go filepath.WalkDir: it looks for providers, and opens none
internal/terraform/init.go os.Stat: likewise
internal/terraform/init.go os.ReadFile: files that Materialise has just compared or written
internal/terraform/workdir.go filepath.EvalSymlinks: what checkLinks allows
internal/terraform/workdir.go filepath.WalkDir: it opens no file and enters no link
internal/terraform/origins.go os.DirFS: a mirror
internal/terraform/origins.go os.ReadFile: Terraform's configuration
internal/terraform/providers.go filepath.EvalSymlinks: a package in the cache, for a message
internal/terraform/resolve.go os.DirFS: the system's temporary folder
internal/terraform/resolve.go os.Mkdir: likewise
internal/terraform/resolve.go os.RemoveAll: likewise
internal/terraform/resolve.go os.WriteFile: likewise
internal/terraform/stored.go os.DirFS: a module, whose links checkLinks has allowed
internal/terraform/servers.go filepath.EvalSymlinks: a link that checkLinks has allowed
`

// TestFilesOfTheStateDirectoryAreOpenedByOwnfile finds a file that is opened past package ownfile, which
// follows no link and waits for no pipe.
func TestFilesOfTheStateDirectoryAreOpenedByOwnfile(t *testing.T) {
	unused := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(elsewhere)) {
		use, reason, _ := strings.Cut(line, ": ")
		unused[use] = reason
	}
	known := maps.Clone(unused)
	for _, s := range parsed(t) {
		if s.test || !slices.ContainsFunc(strings.Fields("state run terraform cluster operation providers"),
			func(name string) bool {
				dir := "internal/" + name
				return s.dir == dir || strings.HasPrefix(s.dir, dir+"/")
			}) ||
			slices.Contains([]string{"internal/terraform/warm", "internal/operation/providers"}, s.dir) {
			continue // warm makes a folder of sockets, and operation/providers a mirror
		}
		for pkg, functions := range direct {
			ast.Inspect(s.file, func(n ast.Node) bool {
				use, ok := n.(*ast.SelectorExpr)
				if !ok || typeName(use.X) != pkg || !slices.Contains(functions, use.Sel.Name) {
					return true
				}
				name := fmt.Sprintf("%s %s.%s", s.path, pkg, use.Sel.Name)
				if known[name] == "" {
					t.Errorf("%s: %s: use ownfile for a path below the state directory, or say in this test "+
						"where the path lies", s.place(use), name)
				}
				delete(unused, name)
				return true
			})
		}
	}
	for name := range unused {
		t.Errorf("%s: nothing uses it: remove it from this test", name)
	}
}

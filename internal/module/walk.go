package module

import (
	"io/fs"
	"path"
	"strings"

	"github.com/hashicorp/terraform-config-inspect/tfconfig"
)

// Walk visits the module in a folder of files, and, once each, those that it and they call by a relative
// path. What is not readable of a module is in its Diagnostics. An error of visit ends the walk.
func Walk(files fs.FS, dir string, visit func(dir string, m *tfconfig.Module) error) error {
	return walk(files, dir, visit, map[string]bool{})
}

func walk(files fs.FS, dir string, visit func(string, *tfconfig.Module) error, seen map[string]bool) error {
	if seen[dir] || !fs.ValidPath(dir) {
		return nil
	}
	seen[dir] = true
	m, _ := tfconfig.LoadModuleFromFilesystem(tfconfig.WrapFS(files), dir)
	if err := visit(dir, m); err != nil {
		return err
	}
	for _, call := range m.ModuleCalls {
		if strings.HasPrefix(call.Source, "./") || strings.HasPrefix(call.Source, "../") {
			if err := walk(files, path.Join(dir, call.Source), visit, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

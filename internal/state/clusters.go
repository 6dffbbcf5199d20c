package state

import (
	"path/filepath"
	"strings"
)

// Clusters lists the clusters that have a state directory below root, each with
// its platform: blue/proxmox. It makes nothing.
func Clusters(root string) ([]string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	marks, err := filepath.Glob(filepath.Join(escapeGlob(root), "*", "*", "layout"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, mark := range marks { // Glob sorts
		rel, err := filepath.Rel(root, filepath.Dir(mark))
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.ToSlash(rel))
	}
	return names, nil
}

// escapeGlob makes a pattern of a path that matches nothing but it.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

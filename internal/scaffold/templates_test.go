package scaffold

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

func TestTheRepositoryShadowsTemplatesByFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "templates"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "templates", "a.tmpl"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := layered(dir, fstest.MapFS{
		"a.tmpl": {Data: []byte("embedded")}, "b.tmpl": {Data: []byte("embedded")},
	})
	for name, want := range map[string]string{"a.tmpl": "mine", "b.tmpl": "embedded"} {
		if src, err := fs.ReadFile(all, name); err != nil || string(src) != want {
			t.Errorf("%s: %q %v", name, src, err)
		}
	}
	if entries, err := fs.ReadDir(all, "."); err != nil || len(entries) != 2 {
		t.Errorf("templates: %v %v", entries, err)
	}
}

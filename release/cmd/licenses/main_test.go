package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cached makes a folder of the module cache from files.
func cached(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEachTextIsWrittenOnceWithItsModules(t *testing.T) {
	texts := map[string]*text{}
	for name, files := range map[string]map[string]string{
		"example.org/a v1.0.0": {"LICENSE": "MIT License\r\nof all\r\n", "testdata/LICENSE": "a test's"},
		"example.org/b v1.0.0": {"License.md": "\nMIT License\nof all", "third_party/x/COPYING": "BSD of x",
			"license.go": "package b"},
	} {
		if err := collect(texts, name, cached(t, files)); err != nil {
			t.Fatal(err)
		}
	}
	got := string(page(texts))
	for _, want := range []string{"BSD of x",
		"example.org/a v1.0.0\nexample.org/b v1.0.0\n\nMIT License\nof all\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if strings.Count(got, "MIT") != 1 || strings.Contains(got, "a test's") ||
		strings.Contains(got, "package") {
		t.Errorf("%s", got)
	}
}

func TestWhatCannotBeReleasedIsRefused(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"has no license":          {"README.md": "free"},
		"Business Source License": {"LICENSE": "Business Source License 1.1"},
		"GNU AFFERO":              {"COPYING": "GNU AFFERO GENERAL PUBLIC LICENSE\n  Version 3"},
		"GNU GENERAL PUBLIC LICENSE\n ": {"LICENSE": "MIT",
			"deep/LICENSE": "GNU GENERAL PUBLIC LICENSE\n Version 2"},
	} {
		err := collect(map[string]*text{}, "example.org/a v1.0.0", cached(t, files))
		if err == nil || !strings.Contains(err.Error(), "example.org/a") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStateStoreNeedsNoValidCluster(t *testing.T) {
	for name, c := range map[string]struct {
		file, url, problem string
		quoted             bool
	}{
		"a store":       {"state {\n  store = \"file:///srv/castle\"\n}\n", "file:///srv/castle", "", true},
		"none":          {"runs {\n  keep = 3\n}\n", "", "", true},
		"unknown parts": {"unknown {}\nstate {\n  store = \"s3://b\"\n}\n", "s3://b", "", true},
		"half a file":   {"state {\n  store = \n", "", "{ is not closed", true},
		"a password": {"state {\n  store = \"postgres://me:pa55@host/db\"\n}\n", "", "Remove the password",
			false},
		"a password in no URL": {"state {\n  store = \"postgres://me:pa55/x@host/db\"\n}\n", "",
			"cannot be parsed", false},
		"a key as user": {"state {\n  store = \"s3://pa55@b\"\n}\n", "", "Remove the user or key", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "castle.hcl"), []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			s, files, diags := ReadStateStore(Options{Repository: dir})
			switch {
			case c.problem == "" && (diags.HasErrors() || s.URL != c.url):
				t.Errorf("got %q, %v", s.URL, diags)
			case !strings.Contains(diags.Error(), c.problem):
				t.Errorf("got %v, want %q", diags, c.problem)
			case c.quoted != (files["castle.hcl"] != nil):
				t.Errorf("a diagnostic may quote the file: %t", !c.quoted)
			}
		})
	}
	if s, _, diags := ReadStateStore(Options{Repository: t.TempDir()}); s.URL != "" || diags.HasErrors() {
		t.Errorf("without a file: %v, %v", s, diags)
	}
}

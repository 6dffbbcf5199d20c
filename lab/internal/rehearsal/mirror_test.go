//go:build integration

package rehearsal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

const acme = "example.com/acme/null"

// userMirror makes a mirror and the CLI configuration of a user. Terraform starts no provider at init.
func userMirror(t *testing.T, versions ...string) (dir string, environ []string) {
	t.Helper()
	dir = t.TempDir()
	for _, v := range versions {
		home := filepath.Join(dir, acme, v, providers.Here())
		check(t, os.MkdirAll(home, 0o700))
		check(t, os.WriteFile(filepath.Join(home, "terraform-provider-null_v"+v), []byte(v), 0o700))
	}
	rc := filepath.Join(t.TempDir(), "terraformrc")
	check(t, os.WriteFile(rc, fmt.Appendf(nil,
		"provider_installation {\n  filesystem_mirror { path = %q }\n}\n", dir), 0o600))
	return dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TF_CLI_CONFIG_FILE=" + rc}
}

func TestRealProvidersComeFromTheUsersMirror(t *testing.T) {
	binary, err := terraform.Find(t.Context(), terraform.Terraform, t.TempDir(),
		func(text string) { t.Log(text) })
	check(t, err)
	user, environ := userMirror(t, "1.0.0", "1.1.0")
	module := fstest.MapFS{"main.tf": &fstest.MapFile{Data: []byte(`terraform {
  required_providers {
    null = {
      source  = "` + acme + `"
      version = "~> 1.0"
    }
  }
}`)}}
	s := &survey{ClusterDir: t.TempDir(), modules: []fs.FS{module, module}}
	newMirror := func() string { return filepath.Join(t.TempDir(), "mirror") }

	mirror := newMirror()
	lock, err := s.download(t.Context(), binary, mirror, environ)
	check(t, err)
	if lock[acme].Version != "1.1.0" {
		t.Errorf("without a lock file: %+v, want the newest", lock)
	}
	path := filepath.Join(mirror, acme, "1.1.0", providers.Here())
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		t.Errorf("%s is not a copy: %v, %v", path, info, err)
	}
	hash, err := providers.Hash(path)
	if err != nil || !lock[acme].Holds([]string{hash}) {
		t.Errorf("the lock does not have the copy's checksum: %s, %v", hash, err)
	}

	// The recorded version counts, and its checksum.
	old, err := providers.Hash(filepath.Join(user, acme, "1.0.0", providers.Here()))
	check(t, err)
	recorded := providers.Lock{acme: providers.Entry{Version: "1.0.0"}.WithPlatform(providers.Here(), old)}
	check(t, os.WriteFile(filepath.Join(s.ClusterDir, providers.FileName), recorded.File(), 0o600))
	mirror = newMirror()
	lock, err = s.download(t.Context(), binary, mirror, environ)
	if err != nil || lock[acme].Version != "1.0.0" {
		t.Errorf("with a lock file: %v, %v", lock, err)
	}
	check(t, os.WriteFile(filepath.Join(user, acme, "1.0.0", providers.Here(), "more"), nil, 0o600))
	_, err = s.download(t.Context(), binary, newMirror(), environ)
	if _, is := errors.AsType[*terraform.MismatchError](err); !is {
		t.Errorf("a changed provider: %v", err)
	}
}

func TestARehearsalRefusesDevOverrides(t *testing.T) {
	rc := filepath.Join(t.TempDir(), "terraformrc")
	check(t, os.WriteFile(rc, []byte("provider_installation {\n  dev_overrides {\n"+
		"    \"acme/null\" = \"/x\"\n  }\n  direct {}\n}\n"), 0o600))
	s := &survey{ClusterDir: t.TempDir()}
	_, err := s.download(t.Context(), terraform.Binary{}, t.TempDir(), []string{"TF_CLI_CONFIG_FILE=" + rc})
	if _, is := errors.AsType[*UsageError](err); !is || !strings.Contains(err.Error(), "dev_overrides") {
		t.Errorf("got %v", err)
	}
}

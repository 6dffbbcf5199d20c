package terraform

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ephemeral-castle/castle/internal/ownfile"
)

func TestOnlyLinksOfInitStayInAWorkDirectory(t *testing.T) {
	stage, home, outside := ownfile.Resolve(t.TempDir()), t.TempDir(), t.TempDir()
	r := &Root{Dir: filepath.Join(stage, "work"), StatePath: filepath.Join(stage, "terraform.tfstate"),
		PluginCache: t.TempDir(), Env: []string{"HOME=" + home}}
	if err := r.checkLinks(); err != nil {
		t.Errorf("before the first use: %v", err)
	}
	mirror := filepath.Join(home, ".terraform.d", "plugins")
	writeFile(t, filepath.Join(mirror, "fake", "provider"), "program")
	writeFile(t, filepath.Join(r.PluginCache, "own", "provider"), "program")
	writeFile(t, filepath.Join(r.Dir, ".terraform", "modules", "edge", "main.tf"), "")
	writeFile(t, filepath.Join(r.Dir, ".terraform", "providers", "lock"), "")
	if err := os.Symlink(filepath.Join(mirror, "fake"), filepath.Join(r.PluginCache, "linked")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at, to string
		stays  bool
	}{
		{"work/.terraform/providers/own", filepath.Join(r.PluginCache, "own"), true},
		{"work/.terraform/providers/linked", filepath.Join(r.PluginCache, "linked"), true},
		{"work/.terraform/providers/mirrored", filepath.Join(mirror, "fake"), true},
		{"work/.terraform/providers/gone", filepath.Join(r.PluginCache, "gone"), true},
		{"work/.terraform/modules/edge/link.tf", "main.tf", true},
		{"work/.terraform/providers/evil", outside, false},
		{"work/.terraform/providers/up", "../../../..", false},
		{"work/.terraform/modules/edge/evil.tf", outside, false},
		{"work/.terraform/environment", filepath.Join(r.PluginCache, "own"), false},
		{"work/main.tf", outside, false},
		{"work/castle.tfplan", outside, false},
		{"work/dangling", filepath.Join(outside, "none"), false},
		{"terraform.tfstate", outside, false},
		{".terraform.tfstate.lock.info", outside, false},
	} {
		path := filepath.Join(stage, c.at)
		if err := os.Symlink(c.to, path); err != nil {
			t.Fatal(err)
		}
		var refused *ownfile.RefusedError
		err := r.checkLinks()
		if c.stays && err != nil || !c.stays && (!errors.As(err, &refused) || refused.Path != path) {
			t.Errorf("%s to %s: %v", c.at, c.to, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoCommandStartsOverALink(t *testing.T) {
	r := &Root{Dir: ownfile.Resolve(t.TempDir()), Binary: Binary{Path: "/nothing"}, Env: []string{"HOME=/"}}
	if err := os.Symlink("/etc/hostname", filepath.Join(r.Dir, "evil.tf")); err != nil {
		t.Fatal(err)
	}
	var refused *ownfile.RefusedError
	if err := r.askVersion(t.Context()); !errors.As(err, &refused) {
		t.Errorf("command: %v", err)
	}
	if _, err := r.Exec(t.Context(), []string{"plan"}, nil, nil, nil); !errors.As(err, &refused) {
		t.Errorf("exec: %v", err)
	}
}

// On a full disk init leaves a copy of a mirror's package, which may hold links. The next init must not be
// refused because of them.
func TestInitDiscardsPackagesThatAreNoLinks(t *testing.T) {
	dir, outside := ownfile.Resolve(t.TempDir()), filepath.Join(t.TempDir(), "program")
	r := &Root{Dir: dir, Binary: Binary{Path: "/nothing"}, Env: []string{"HOME=/"}}
	copied := filepath.Join(dir, ".terraform", "providers", "registry", "fake", "linux_amd64")
	writeFile(t, outside, "program")
	if err := errors.Join(os.MkdirAll(copied, 0o700),
		os.Symlink(outside, filepath.Join(copied, "provider"))); err != nil {
		t.Fatal(err)
	}
	if err := r.checkLinks(); err == nil {
		t.Fatal("the link is allowed")
	}
	if err := errors.Join(r.discardPackages(), r.checkLinks()); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(outside); string(data) != "program" {
		t.Errorf("the target is %q, %v", data, err)
	}
}

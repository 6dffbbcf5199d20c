package outline_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/ephemeral-castle/castle/internal/outline"
)

func TestStagesAreThoseThatTheFileLists(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "clusters", "blue", "proxmox")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "cluster.hcl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`
cluster { protect = true }
stage "metallb" {
  source  = "networking/metallb"
  enabled = false
}
stage "sync" {
  source  = "gitops/sync"
  enabled = cluster.name != "red"
}
stage { source = "networking/nameless" }
`)
	metallb := outline.Stage{Name: "metallb", Source: "networking/metallb", Disabled: true}
	sync := outline.Stage{Name: "sync", Source: "gitops/sync"}
	file, diags := outline.Read(root, "blue/proxmox")
	if diags.HasErrors() || !reflect.DeepEqual(file.Stages, []outline.Stage{metallb, sync}) ||
		sync.Layer() != "gitops" {
		t.Errorf("all: %+v, %v", file.Stages, diags)
	}
	if got := file.Enabled(); len(got) != 1 || got[0] != sync {
		t.Errorf("enabled: %+v", got)
	}
	write(`stage "metallb" {`)
	if _, diags := outline.Read(root, "blue/proxmox"); !diags.HasErrors() {
		t.Error("no error for a file that cannot be read")
	}
}

package folders_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ephemeral-castle/castle/internal/folders"
)

func TestFindRepositoryLooksUpward(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "clusters", "blue", "proxmox")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{root, deep} {
		if got, err := folders.Find(start); err != nil || got != root {
			t.Errorf("from %s: %s, %v", start, got, err)
		}
	}
	if got, err := folders.Find(t.TempDir()); err == nil {
		t.Errorf("found %s where there is none", got)
	}
}

package labels_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/labels"
	"github.com/ephemeral-castle/castle/internal/outline"
)

func TestLabelsAreReadFromClusterFile(t *testing.T) {
	const two = `env = "staging", "example.com/site" = "rome"`
	for body, want := range map[string]string{
		"cluster { labels = { " + two + " } }":  "env=staging,example.com/site=rome",
		`cluster {}`:                            "",
		`stage "a" { source = "b/c" }`:          "",
		`cluster { labels = { env = [3] } }`:    "cluster.hcl:1,22-31: label env: unsuitable; Key and value",
		`cluster { labels = { env = 3 } }`:      "env=3",
		`cluster { labels = { cluster = "a" }}`: "Every cluster has this label",
		`cluster { labels = "x" }`:              "labels: unsuitable value",
		`cluster { labels = { "a b" = "x" } }`:  `The key "a b" is not one of Kubernetes`,
		`cluster { labels = { env = "a/b" } }`:  `The value "a/b" is not one of Kubernetes`,
		`cluster { labels = { env = var.x } }`:  "label env: unsuitable",
		`cluster { labels = { a = "", a = ""}}`: "The key is there twice",
		`cluster {`:                             "clusters/blue/proxmox/cluster.hcl:1",
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "clusters", "blue", "proxmox")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cluster.hcl"), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
		file, diags := outline.Read(root, "blue/proxmox")
		wrong := diags.HasErrors()
		if !wrong && labels.Text(file.Labels) != want || wrong && !strings.Contains(diags.Error(), want) {
			t.Errorf("%s\n%s, %v\nwant %s", body, labels.Text(file.Labels), diags, want)
		}
	}
	if _, diags := outline.Read(t.TempDir(), "blue/proxmox"); !diags.HasErrors() {
		t.Error("no error without the file")
	}
	want := map[string]string{"a": "1", labels.Cluster: "blue", labels.Platform: "proxmox"}
	if got := labels.All(map[string]string{"a": "1"}, "blue/proxmox"); !maps.Equal(got, want) {
		t.Errorf("all: %v", got)
	}
}

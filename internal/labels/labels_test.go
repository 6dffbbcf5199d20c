package labels_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/labels"
)

func TestSelectorsChooseAsKubernetesDoes(t *testing.T) {
	rome := map[string]string{"env": "staging", "site": "rome"}
	for text, want := range map[string]bool{
		"env=staging":               true,
		"env==staging,site=rome":    true,
		"env=staging,site!=rome":    false,
		"tier!=gold":                true, // no such label
		"tier=gold":                 false,
		"site":                      true,
		"!site":                     false,
		"site in (milan, rome)":     true,
		"site notin (rome),env":     false,
		" env = staging , site ":    true,
		"castle.example/wave=first": false,
	} {
		s, err := labels.Parse(text)
		if err != nil || s.Matches(rome) != want || s.Empty() {
			t.Errorf("%q: %t, empty %t, %v; want %t", text, s.Matches(rome), s.Empty(), err, want)
		}
	}
	if s := (labels.Selector{}); !s.Matches(nil) || !s.Empty() || s.String() != "" {
		t.Error("the zero selector does not choose everything")
	}
}

func TestSelectorsThatAreNoneAreRefused(t *testing.T) {
	for text, part := range map[string]string{
		"":               "is empty",
		"  ":             "is empty",
		"env=stag ing":   `selector "env=stag ing"`,
		"env in staging": "write one such as",
		"-env":           "name part must",
	} {
		if _, err := labels.Parse(text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want %q", text, err, part)
		}
	}
}

func TestLabelsAreReadFromClusterFile(t *testing.T) {
	const two = `env = "staging", "example.com/site" = "rome"`
	for body, want := range map[string]string{
		"cluster { labels = { " + two + " } }":  "env=staging,example.com/site=rome",
		`cluster {}`:                            "",
		`stage "a" { source = "b/c" }`:          "",
		`cluster { labels = { env = 3 } }`:      "cluster.hcl:1,22-29: label env: unsuitable; Key and value",
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
		got, err := labels.Of(root, "blue/proxmox")
		if err == nil && labels.Text(got) != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%s, %v\nwant %s", body, labels.Text(got), err, want)
		}
	}
	if _, err := labels.Of(t.TempDir(), "blue/proxmox"); err == nil {
		t.Error("no error without the file")
	}
	set := map[string]string{"b": "1", "a": "2"}
	if s, err := labels.Parse(labels.Text(set)); err != nil || !s.Matches(maps.Clone(set)) {
		t.Errorf("%s: %v", labels.Text(set), err)
	}
}

package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/fleet"
)

// repository writes files, by path, and returns their folder.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func labelled(labels string) string { return "cluster { labels = {" + labels + "} }\n" }

func threeClusters() map[string]string {
	return map[string]string{
		"clusters/blue/proxmox/cluster.hcl":  labelled(`env = "staging", site = "rome"`),
		"clusters/green/proxmox/cluster.hcl": labelled(`env = "production", site = "rome"`),
		"clusters/red/hcloud/cluster.hcl":    `stage "a" { source = "platform/a" }`,
	}
}

func waves(f *fleet.Fleet) string {
	var parts []string
	for _, w := range f.Waves {
		parts = append(parts, w.Name+": "+strings.Join(fleet.Names(w.Clusters), " "))
	}
	return strings.Join(parts, "; ")
}

func TestWavesTakeTheClustersThatTheyMatchFirst(t *testing.T) {
	files := threeClusters()
	files["fleet.hcl"] = `
wave "staging" {
  select       = "env=staging"
  parallel     = 3
  canary       = 1
  max_failures = 2
  soak         = "15m"
}
wave "rome" {
  select   = "site=rome"
  approval = true
  pause    = "1h"
}`
	f, diags := fleet.Load(repository(t, files))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if got := waves(f); got != "staging: blue/proxmox; rome: green/proxmox" {
		t.Error(got)
	}
	if len(f.Unassigned) != 1 || f.Unassigned[0].Name != "red/hcloud" {
		t.Errorf("unassigned: %v", f.Unassigned)
	}
	first, second := f.Waves[0], f.Waves[1]
	if first.Parallel != 3 || first.Canary != 1 || first.MaxFailures != 2 || first.Soak != 15*time.Minute ||
		first.Approval || !second.Approval || second.Pause != time.Hour || second.At.Start.Line != 9 {
		t.Errorf("%+v, %+v", first, second)
	}
	only, err := fleet.ParseSelector("platform=proxmox,env!=staging")
	if err != nil {
		t.Fatal(err)
	}
	if got := waves(f.Select(only)); got != "rome: green/proxmox" {
		t.Error(got)
	}
}

func TestWithoutAFileOneWaveHasAllClusters(t *testing.T) {
	f, diags := fleet.Load(repository(t, threeClusters()))
	if diags.HasErrors() || waves(f) != "all: blue/proxmox green/proxmox red/hcloud" {
		t.Error(waves(f), diags)
	}
}

func TestSelectors(t *testing.T) {
	labels := map[string]string{"env": "staging", "site": "rome", "cluster": "blue", "empty": ""}
	for text, want := range map[string]bool{
		"": true, "env=staging": true, "env=production": false, "env!=production": true, "zone!=a": true,
		"env": true, "zone": false, "!zone": true, "!env": false, "env=staging,site!=rome": false,
		" env = staging , site=rome ": true, "cluster=blue": true, "empty=": true, "env=": false,
		"zone=": false, "env in (staging,test)": true, "env notin (staging)": false, "env==staging": true,
	} {
		s, err := fleet.ParseSelector(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		again, err := fleet.ParseSelector(s.String())
		if s.Matches(labels) != want || err != nil || again.Matches(labels) != want {
			t.Errorf("%q: want %v, also of %q: %v", text, want, s, err)
		}
	}
	for _, text := range []string{",", "env=a,", "=a", "env=a=b", "!env=a", "env in (a", "env=a b", "é=a"} {
		if s, err := fleet.ParseSelector(text); err == nil {
			t.Errorf("%q is read as %q", text, s)
		}
	}
}

func TestEachProblemHasItsPlace(t *testing.T) {
	for _, one := range []struct{ file, text, at, says string }{
		{"fleet.hcl", "", "fleet.hcl:1", "no wave"},
		{"fleet.hcl", `wave "A" {}`, "fleet.hcl:1", "unsuitable name"},
		{"fleet.hcl", "wave \"a\" {}\nwave \"a\" {}", "fleet.hcl:2", "second block"},
		{"fleet.hcl", "wave \"a\" {\n selct = \"\"\n}", "fleet.hcl:2", "selct"},
		{"fleet.hcl", "wave \"a\" {\n select = \"env=\"x\"\n}", "fleet.hcl:2", ""},
		{"fleet.hcl", "wave \"a\" {\n select = \"env in x\"\n}", "fleet.hcl:2", "key=value"},
		{"fleet.hcl", "wave \"a\" {\n select = null\n}", "fleet.hcl:2", "null"},
		{"fleet.hcl", "wave \"a\" {\n select = var.x\n}", "fleet.hcl:2", ""},
		{"fleet.hcl", "wave \"a\" {\n canary = 0\n}", "fleet.hcl:2", "at least 1"},
		{"fleet.hcl", "wave \"a\" {\n parallel = 1.5\n}", "fleet.hcl:2", "whole number"},
		{"fleet.hcl", "wave \"a\" {\n max_failures = -1\n}", "fleet.hcl:2", "at least 0"},
		{"fleet.hcl", "wave \"a\" {\n approval = \"by me\"\n}", "fleet.hcl:2", "bool"},
		{"fleet.hcl", "wave \"a\" {\n soak = \"-1m\"\n}", "fleet.hcl:2", "no duration"},
		{"clusters/blue/proxmox/cluster.hcl", "\ncluster {\n labels = [1]\n}",
			"clusters/blue/proxmox/cluster.hcl:3", "labels"},
		{"clusters/blue/proxmox/cluster.hcl", "cluster {", "clusters/blue/proxmox/cluster.hcl:1", ""},
		{"clusters/blue/proxmox/cluster.hcl", labelled("env = null"),
			"clusters/blue/proxmox/cluster.hcl:1", ""},
	} {
		files := threeClusters()
		files[one.file] = one.text
		_, diags := fleet.Load(repository(t, files))
		found := false
		for _, d := range diags {
			at := ""
			if d.Subject != nil {
				at = fmt.Sprintf("%s:%d", d.Subject.Filename, d.Subject.Start.Line)
			}
			found = found || d.Severity == hcl.DiagError && at == one.at &&
				strings.Contains(d.Error(), one.says)
		}
		if !found {
			t.Errorf("%q in %s: want %q at %s, got %v", one.text, one.file, one.says, one.at, diags)
		}
	}
}

func TestAThousandClustersAreReadInAnInstant(t *testing.T) {
	files := map[string]string{"fleet.hcl": "wave \"a\" { select = \"n=1\" }\nwave \"rest\" {}"}
	for i := range 1000 {
		files[fmt.Sprintf("clusters/c%04d/proxmox/cluster.hcl", i)] = labelled(fmt.Sprintf("n = %d", i%10)) +
			strings.Repeat("stage \"a\" {\n  source = \"platform/a\"\n}\n", 3)
	}
	dir := repository(t, files)
	start := time.Now()
	f, diags := fleet.Load(dir)
	if diags.HasErrors() || len(f.Clusters()) != 1000 || len(f.Waves[0].Clusters) != 100 {
		t.Fatal(len(f.Clusters()), diags)
	}
	t.Logf("read in %v", time.Since(start))
}

func TestPartsArePipelinesJobs(t *testing.T) {
	files := threeClusters()
	files["fleet.hcl"] = "wave \"rome\" {\n  select = \"site=rome\"\n  canary = 1\n}\nwave \"rest\" {}"
	f, diags := fleet.Load(repository(t, files))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	for _, one := range []struct {
		touched, want string
	}{
		{"blue/proxmox green/proxmox red/hcloud",
			"rome-canary true [blue/proxmox] rome false [green/proxmox] rest true [red/hcloud] "},
		{"green/proxmox", "rome-canary true [green/proxmox] rome false [] rest true [] "},
		{"", "rome-canary true [] rome false [] rest true [] "},
	} {
		got := ""
		for _, p := range f.Parts(func(name string) bool { return strings.Contains(one.touched, name) }) {
			got += fmt.Sprintf("%s %t %v ", p.Name, p.First, fleet.Names(p.Clusters))
		}
		if got != one.want {
			t.Errorf("%q: %s, want %s", one.touched, got, one.want)
		}
	}
	rome, red := f.Waves[0].Clusters[0].Runner("any"), f.Waves[1].Clusters[0].Runner("any")
	if rome != "rome" || red != "any" {
		t.Errorf("runners: %s, %s", rome, red)
	}
}

func TestADigestHasTheTextsThatAClusterReads(t *testing.T) {
	files := threeClusters()
	files["clusters/blue/proxmox/cluster.hcl"] = `stage "a" {
		source = "platform/a"
		inputs = { text = file("../../../patches/${cluster.name}.yaml") }
	}`
	files["clusters/green/proxmox/cluster.hcl"] = `stage "a" {
		source = "platform/a"
		inputs = { text = file(var.path) }
	}`
	files["patches/blue.yaml"] = "1"
	digests := func() (all []string) {
		of := fleet.Digest(repository(t, files), "1.0.0")
		for _, name := range []string{"blue/proxmox", "green/proxmox", "red/hcloud"} {
			digest, err := of(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, digest)
		}
		return all
	}
	before := digests()
	files["patches/blue.yaml"] = "2"
	after := digests()
	if after[0] == before[0] || after[1] == before[1] || after[2] != before[2] {
		t.Error(before, after)
	}
}

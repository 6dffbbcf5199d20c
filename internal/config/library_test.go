package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The folder of a stage is read once, for all stages that have it as their source.
func TestStagesOfOneSourceAreApart(t *testing.T) {
	o := repository(t, "-- library/storage/plain/main.tf --\nvariable \"size\" { default = \"small\" }\n"+
		"-- library/storage/plain/stage.hcl --\n"+
		"stage {}\ngate \"tcp\" \"a\" {\n  host = \"h\"\n  timeout = \"5m\"\n}\n")
	file := filepath.Join(o.Repository, "clusters/blue/proxmox/cluster.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, `
stage "first" {
  source = "storage/plain"
  inputs = { size = "large" }
  gate "tcp" "a" { timeout = "77s" }
}
stage "second" {
  source = "storage/plain"
  gate "tcp" "a" { timeuot = "1m" }
}
stage "third" { source = "storage/plain" }
`...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, diags := Load(o)
	if len(diags) != 1 || !strings.Contains(diags[0].Summary, "unknown argument timeuot") {
		t.Errorf("problems: %v", diags)
	}
	want := map[string]string{"first": "1m17s large", "second": "5m0s small", "third": "5m0s small"}
	for _, s := range c.Stages {
		if want[s.Name] == "" {
			continue
		}
		got := fmt.Sprint(s.Gates[0].Policy.Timeout, " ", s.Written("size").Value.AsString())
		if got != want[s.Name] {
			t.Errorf("%s: %s, want %s", s.Name, got, want[s.Name])
		}
		delete(want, s.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestAnUnsuitableValueIsMarkedWhereItStands(t *testing.T) {
	for module, line := range map[string]int{
		`variable "disks" { type = map(object({ size = number })) }`: 3,
		// Lines of a snippet could be a secret.
		"variable \"disks\" {\n  type = map(object({ size = number }))\n  sensitive = true\n}": 1,
	} {
		o := repository(t, "-- library/storage/longhorn/main.tf --\n"+module+
			"\n-- library/storage/longhorn/stage.hcl --\nstage {}\n")
		file := filepath.Join(t.TempDir(), "more.tfvars")
		text := "disks = {\n  a = { size = 1 }\n  b = { size = \"big\" }\n}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.VarFiles = []string{file}
		_, diags := Load(o)
		if len(diags) != 1 || !strings.Contains(diags[0].Summary, "b.size: a number is required") {
			t.Fatalf("problems: %v", diags)
		}
		if at := diags[0].Subject; at.Start.Line != line || at.End.Line != line {
			t.Errorf("%s: marked lines %d to %d, want %d", module, at.Start.Line, at.End.Line, line)
		}
	}
}

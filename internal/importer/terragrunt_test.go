package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// imported writes files, imports those below live, and returns the result.
func imported(t *testing.T, files map[string]string) *Stages {
	t.Helper()
	dir := written(t, files)
	s, err := Terragrunt(filepath.Join(dir, "live"), "blue/cloud")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// holds compares a file, or a piece of it, without regard to white space.
func (s *Stages) holds(t *testing.T, name string, pieces ...string) {
	t.Helper()
	text := strings.Join(strings.Fields(string(s.Files[name])), " ")
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("%s lacks %q:\n%s", name, piece, s.Files[name])
		}
	}
}

func (s *Stages) expect(t *testing.T, gaps ...string) {
	t.Helper()
	var lines []string
	for _, g := range s.Gaps {
		lines = append(lines, filepath.Base(g.File)+": "+g.Subject+": "+g.Reason)
		if g.Line < 1 || g.Fix == "" {
			t.Errorf("without a line or a way out: %+v", g)
		}
	}
	for _, want := range gaps {
		if !strings.Contains(strings.Join(lines, "\n"), want) {
			t.Errorf("no gap %q", want)
		}
	}
	if t.Failed() || len(lines) != len(gaps) {
		t.Errorf("%d gaps, want %d:\n%s", len(lines), len(gaps), strings.Join(lines, "\n"))
	}
}

const vpc = `
variable "cidr" { type = string }
variable "tags" { type = map(string) }
variable "zone" { type = string }
variable "token" { type = string }
output "id" { value = 1 }
`

func TestIncludesAndConfigurationsAboveAreEvaluated(t *testing.T) {
	s := imported(t, map[string]string{
		".git/HEAD": "",
		"root.hcl": "locals { name = \"r-${path_relative_to_include()}\" }\n" +
			"inputs = { cidr = \"x\", zone = \"root\" }",
		"live/env.hcl":     "locals { cidr = \"10.0.0.0/16\" }",
		"modules/vpc/a.tf": vpc, "modules/vpc/templates/x.tpl": "x", "modules/vpc/.terraform/x": "x",
		"live/networking/vpc/terragrunt.hcl": `
include "root" {
  path   = find_in_parent_folders("root.hcl")
  expose = true
}
locals {
  b   = local.env.locals.cidr # before what it needs
  env = read_terragrunt_config(find_in_parent_folders("env.hcl"))
  no  = read_terragrunt_config("none.hcl", { locals = {} })
}
terraform { source = "${get_repo_root()}/modules//vpc" }
inputs = merge({ cidr = local.b }, { tags = { name = include.root.locals.name, "a.b" = "c" } })
`})
	s.holds(t, "clusters/blue/cloud/cluster.hcl", `stage "vpc" { source = "networking/vpc" inputs = { `+
		`cidr = "10.0.0.0/16" tags = { "a.b" = "c" "name" = "r-live/networking/vpc" } zone = "root" } }`)
	s.holds(t, "stages/networking/vpc/a.tf", `variable "cidr"`)
	s.holds(t, "stages/networking/vpc/templates/x.tpl", "x")
	if len(s.Files) != 4 {
		t.Errorf("%v", s.Files)
	}
	s.expect(t)
}

func TestDependenciesBecomeReferences(t *testing.T) {
	s := imported(t, map[string]string{
		"live/a/main.tf": vpc, "live/a/terragrunt.hcl": "",
		"live/platform/main.tf": "variable \"ids\" {}\nvariable \"a\" {}", "live/platform/terragrunt.hcl": `
dependency "a" { config_path = "../a" }
dependency "elsewhere" { config_path = "../../elsewhere" }
inputs = {
  ids = [for i in [dependency.a.outputs.id[0].x] : "${i}"]
  a   = dependency.a.outputs
}
`,
		"live/storage/a/main.tf": "variable \"x\" {}", "live/storage/a/terragrunt.hcl": `
dependency "e" { config_path = "../../../elsewhere" }
dependencies { paths = ["../../a"] }
inputs = { x = dependency.e.outputs.y }
`})
	s.holds(t, "stages/platform/unit-platform/stage.hcl", `ids = [for i in [platform.id[0].x] : "${i}"]`)
	s.holds(t, "stages/storage/storage-a/stage.hcl", "x = platform.y")
	s.expect(t, "unit: is in no folder of a layer that can have it: castle took platform",
		"dependencies: names ", "inputs.a: refers to dependency.a.outputs, which castle does not write",
		"elsewhere, which becomes no stage")
}

func TestUnitsOfAStackHaveTheirValues(t *testing.T) {
	s := imported(t, map[string]string{
		"units/vpc/terragrunt.hcl": "terraform { source = \"${get_repo_root()}/m\" }\n" +
			"inputs = { cidr = values.cidr, zone = try(values.zone, \"z\"), token = get_env(\"TOKEN\") }",
		".git/HEAD": "", "m/main.tf": vpc,
		"live/terragrunt.stack.hcl": `
locals { cidr = "10.1.0.0/16" }
unit "one" {
  source = "../units/vpc"
  path   = "networking/one"
  values = { cidr = local.cidr }
}
unit "remote" {
  source = "git::https://example.org/units"
  path   = "two"
}
stack "more" {
  source = "../stacks/more"
  path   = "three"
}
`})
	s.holds(t, "clusters/blue/cloud/cluster.hcl", `stage "one" { source = "networking/one" inputs = { `+
		`cidr = "10.1.0.0/16" } }`)
	s.expect(t, `stack.hcl: unit: has no source`, `stack.hcl: stack: has no source`,
		`terragrunt.hcl: inputs.token: is not evaluated: There is no function named "get_env"`,
		`terragrunt.hcl: inputs.zone: is not evaluated: There is no function named "try"`)
}

func TestNothingOutsideOfTheFilesIsRead(t *testing.T) {
	s := imported(t, map[string]string{
		"live/a/terragrunt.hcl": `
locals {
  a = run_cmd("touch", "x")
  b = sops_decrypt_file("x")
  c = get_aws_account_id()
  d = read_terragrunt_config("/etc/passwd")
  e = find_in_parent_folders("nowhere.hcl")
  f = read_terragrunt_config("terragrunt.hcl")
}
terraform { source = "/etc" }
inputs = { a = local.a, password = "x" }
`})
	s.expect(t,
		`: a: is not evaluated: There is no function named "run_cmd"`,
		`: b: is not evaluated: There is no function named "sops_decrypt_file"`,
		`: c: is not evaluated: There is no function named "get_aws_account_id"`,
		"/etc/passwd is outside of the repository", "no folder above has nowhere.hcl",
		"f: is not evaluated: Call to function \"read_terragrunt_config\" failed: files read one another",
		"inputs.a: depends on a value that is not evaluated",
		"inputs.password: looks like a secret, which castle writes nowhere",
		`terraform.source: "/etc" is no folder of this repository`,
		"unit: is in no folder of a layer that can have it")
}

func TestGeneratedFilesComeWithTheModule(t *testing.T) {
	s := imported(t, map[string]string{
		".git/HEAD": "",
		"root.hcl": `
locals { name = "x" }
generate "versions" {
  path     = "versions.tf"
  contents = <<EOF
terraform {
  backend "s3" {}
  required_providers {
    acme   = { source = "acme/acme" }
    beside = { source = "acme/beside" }
    other  = { source = "acme/other" }
  }
}
EOF
}
generate "providers" {
  path     = "providers.tf"
  contents = <<EOF
variable "zone" {}
provider "acme" { name = "${local.name}" }
provider "beside" {}
provider "other" {}
provider "kubernetes" { config_path = "x" }
data "beside_thing" "it" {}
EOF
}
generate "note" {
  path     = "../README.md"
  contents = "x"
}
generate "broken" {
  path     = "broken.tf"
  contents = "provider {"
}
`,
		"live/a/terragrunt.hcl": "include { path = find_in_parent_folders(\"root.hcl\") }\n" +
			"inputs = { zone = basename(get_terragrunt_dir()), none = get_parent_terragrunt_dir() }",
		"live/a/main.tf":     "resource \"acme_thing\" \"it\" {}",
		"live/a/versions.tf": "# generated by Terragrunt",
		"live/b/terragrunt.hcl": "include { path = find_in_parent_folders(\"root.hcl\") }\n" +
			"inputs = { folder = get_parent_terragrunt_dir() }",
		"live/b/main.tf": "variable \"folder\" {}\nmodule \"c\" { source = \"./c\" }\n" +
			"resource \"helm_release\" \"it\" {}",
		"live/b/c/main.tf": "",
	})
	s.holds(t, "clusters/blue/cloud/cluster.hcl", `inputs = { zone = "a" }`)
	s.holds(t, "stages/platform/a/versions.tf", `terraform { required_providers { `+
		`acme = { source = "acme/acme" } beside = { source = "acme/beside" } } }`)
	s.holds(t, "stages/platform/a/providers.tf", `variable "zone" {} provider "acme" { name = "x" } `+
		`provider "beside" {} data "beside_thing" "it" {}`)
	// What a module calls may use them all. What has releases of Helm comes after the cluster.
	s.holds(t, "stages/engine/b/versions.tf", `other = { source = "acme/other" }`)
	s.holds(t, "stages/engine/b/providers.tf", `provider "other" {}`)
	s.expect(t, "castle took platform", "castle took engine",
		"inputs.folder: is a path in the old repository", "generate: has what castle writes itself: backend",
		"castle writes itself: provider kubernetes",
		"generate: writes no file", "generate: writes no file")
}

func TestNothingIsLostInSilence(t *testing.T) {
	dir := written(t, map[string]string{
		".git/HEAD": "",
		"root.hcl": "generate \"a\" {\n path = \"a.tf\"\n contents = \"# root\"\n}\n" +
			"generate \"b\" {\n path = \"b.tf\"\n contents = \"# root\"\n if_exists = \"skip\"\n}\n" +
			"generate \"c\" {\n path = \"c.tf\"\n contents = \"# root\"\n}\n" +
			"inputs = { region = \"eu\", above = get_parent_terragrunt_dir() == get_repo_root() }",
		"live/env.hcl":             "inputs = { below = path_relative_to_include() }",
		"live/terragrunt.hcl":      "locals { env = find_in_parent_folders(\"env.hcl\") }",
		"live/none/terragrunt.hcl": "terraform { source = get_env(\"X\") }",
		"live/b/terragrunt.hcl":    "include { path = find_in_parent_folders() }", "live/b/main.tf": "",
		"live/js/terragrunt.hcl.json": "{}",
		"live/m/terragrunt.hcl":       "terraform { source = \"../../c\" }", "live/m/beside.yaml": "",
		"live/a/terragrunt.hcl": `
include "root" { path = find_in_parent_folders("root.hcl") }
include "env" {
  path           = find_in_parent_folders("env.hcl")
  merge_strategy = "deep"
}
locals {
  p        = "blue"
  password = "hunter2"
  here     = get_terragrunt_dir()
  strange  = get_env("STRANGE")
}
generate "a" {
  path     = "other.tf"
  contents = "# unit"
}
generate "c" {
  path     = "c.tf"
  contents = ""
  disable  = true
}
dependency "b" { config_path = "../b" }
inputs = {
  region           = get_env("REGION")
  db               = { user = "u", password = "hunter2" }
  vpn_auth_key     = "hunter2"
  name             = "${local.p}-${dependency.b.outputs["id"]}"
  url              = "postgres://u:${local.password}@${dependency.b.outputs.host}"
  settings         = { token = "hunter2", host = dependency.b.outputs.host }
  home             = "${get_terragrunt_dir()}/${local.here}/${dependency.b.outputs.host}"
  strange          = "${local.strange}-${dependency.b.outputs.host}"
  default          = try(dependency.b.outputs.id, "none")
  "a${get_env(1)}" = 1
}
`,
		"live/a/main.tf": "variable \"region\" {}\nvariable \"db\" {}\nvariable \"vpn_auth_key\" {}\n" +
			"variable \"name\" {}\nvariable \"above\" {}\nvariable \"below\" {}\nvariable \"url\" {}\n" +
			"variable \"settings\" {}\nvariable \"home\" {}\nvariable \"strange\" {}\n" +
			"variable \"default\" {}",
		"live/a/b.tf": "# module", "live/a/terragrunt_more.tf": "# module", "live/a/x.auto.tfvars": "a = 1",
		"live/a/sub/main.tf": "module \"c\" { source = \"../../../c\" }", "c/main.tf": "",
	})
	if err := os.Symlink("../../c/main.tf", filepath.Join(dir, "live/a/linked.tf")); err != nil {
		t.Fatal(err)
	}
	s, err := Terragrunt(filepath.Join(dir, "live"), "blue/cloud")
	if err != nil {
		t.Fatal(err)
	}
	s.holds(t, "clusters/blue/cloud/cluster.hcl", `stage "a" { source = "platform/a" inputs = { `+
		`above = true below = "a" } }`)
	s.holds(t, "stages/platform/a/stage.hcl", `name = "${"blue"}-${platform.id}"`)
	for name, want := range map[string]string{"a.tf": "", "other.tf": "# unit\n", "b.tf": "# module",
		"c.tf": "", "terragrunt_more.tf": "# module", "linked.tf": "", "x.auto.tfvars": ""} {
		if got := string(s.Files["stages/platform/a/"+name]); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	s.expect(t, "castle took platform", "castle took platform", "castle took platform",
		"include: is merged as shallow",
		"inputs.region: is not evaluated", "inputs.db: looks like a secret",
		"inputs.vpn_auth_key: looks like a secret", "inputs: have a name that is not evaluated",
		"inputs.url: refers to local.password, which castle does not write",
		"inputs.settings: looks like a secret", "inputs.home: has a path in the old repository",
		"strange: is not evaluated", "inputs.strange: refers to local.strange",
		"beside.yaml: is beside the unit, not in its module", "x.auto.tfvars: may have values",
		"linked.tf: is a link", "module.c: is outside of the stage's folder",
		"terragrunt.hcl: source: is not evaluated", "unit: has no module that castle knows",
		"terragrunt.hcl.json: is JSON or a link")
}

func TestWrongStacksAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"terraform {":                            "live/terragrunt.hcl:1: Unclosed configuration block",
		"terraform { source = \"../broken\" }":   "broken/a.tf:1: ",
		"terraform { source = \"../dangling\" }": "dangling:1: Failed to read",
		"inputs = { a = 1 }":                     "has no unit with a Terraform module",
	} {
		dir := written(t, map[string]string{"live/terragrunt.hcl": text, ".git/HEAD": "",
			"broken/a.tf": "resource {", "dangling/main.tf": ""})
		if err := os.Symlink("none", filepath.Join(dir, "dangling/a.tf")); err != nil {
			t.Fatal(err)
		}
		_, err := Terragrunt(filepath.Join(dir, "live"), "blue/cloud")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzTerragrunt(f *testing.F) {
	f.Add("include { path = find_in_parent_folders() }\nlocals { a = local.b }\n" +
		"inputs = merge({ a = 1 }, local.a)")
	f.Add("dependency \"a\" { config_path = \"../a\" }\n" +
		"inputs = { a = dependency.a.outputs.b[0], (local.x) = 1 }")
	f.Add("generate \"a\" {\npath = \"a.tf\"\n" +
		"contents = \"provider {}\\nterraform {\\nbackend \\\"b\\\" {}\\n}\"\n}")
	f.Fuzz(func(t *testing.T, text string) {
		dir := written(t, map[string]string{"live/a/terragrunt.hcl": text, "live/a/main.tf": vpc})
		_, _ = Terragrunt(filepath.Join(dir, "live"), "blue/cloud")
	})
}

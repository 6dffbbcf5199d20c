package config

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestModulesAreReadAsTerraformReadsThem(t *testing.T) {
	c := loaded(t, `
-- library/networking/metallb/main.tf --
terraform {
  required_providers {
    kube = { source = "hashicorp/kubernetes" }
  }
}
resource "terraform_data" "a" {}
resource "random_password" "a" {}
variable "levels" {
  type    = list
  default = ["info"]
}
variable "labels" {
  type    = map
  default = {}
}
output "metallb_namespace" { value = "metallb-system" }
-- library/networking/metallb/more.tf.json --
{"variable": {"size": {"type": "number", "default": 3, "sensitive": true, "description": "How many"}}}
-- library/networking/metallb/.hidden.tf --
output "hidden" { value = "editor's copy" }
-- library/networking/metallb/stage.hcl --
stage { inputs = { labels = { "${cluster.name}/${cluster.platform}" = secrets["git_token"] } } }
`)
	s := stage(t, c, "metallb")
	for local, want := range map[string]string{
		"kube":      "registry.terraform.io/hashicorp/kubernetes",
		"terraform": "terraform.io/builtin/terraform",
		"random":    "registry.terraform.io/hashicorp/random",
	} {
		if got := s.Providers[local]; got != want {
			t.Errorf("provider %s: %q, want %q", local, got, want)
		}
	}
	if len(s.InCluster) != 1 || s.InCluster[0] != s.Providers["kube"] {
		t.Errorf("in cluster: %v", s.InCluster)
	}
	if _, ok := s.Outputs["hidden"]; ok {
		t.Error("a hidden file was read")
	}
	size := s.Variables["size"]
	if size.Type != cty.Number || !size.Sensitive || size.Required || size.Description != "How many" {
		t.Errorf("size: %+v", size)
	}
	in := inputs(t, s)
	if got := in["labels"].Index(cty.StringVal("blue/proxmox")).AsString(); got != "secrets.git_token" {
		t.Errorf("labels: %s", got)
	}
	if got := in["levels"]; !got.Type().Equals(cty.List(cty.String)) {
		t.Errorf("levels: %#v", got)
	}
	if got := names(s.Needs); got != "infisical proxmox-talos" {
		t.Errorf("needs %s", got)
	}
}

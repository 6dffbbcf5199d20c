package config

import (
	"strings"
	"testing"
)

func gateNames(s *Stage) string {
	var all []string
	for _, g := range s.Gates {
		all = append(all, g.Name())
	}
	return strings.Join(all, " ")
}

func TestAGateBelongsToTheStageWhereItsConditionIsTrue(t *testing.T) {
	conditional := func(chart, override string) string {
		return `
-- library/networking/metallb/stage.hcl --
stage {}
gate "webhook" "a" {
  configuration = "a"
  when          = var.metallb_chart_version == "0.15.3"
}
gate "webhook" "b" {
  configuration = "b"
  needs         = [engine]
  when          = var.metallb_chart_version != "0.15.3"
}
-- clusters/blue/proxmox/cluster.hcl --
stage "infisical" { source = "secrets/infisical" }
stage "bare"      { source = "platform/bare" }
stage "metallb" {
  source = "networking/metallb"
` + override + `
}
-- clusters/blue/proxmox/terraform.tfvars --
metallb_chart_version = "` + chart + `"
-- library/platform/bare/stage.hcl --
stage {}
-- library/platform/bare/main.tf --
output "kubeconfig" { value = 1 }
`
	}
	for _, test := range []struct{ name, chart, override, want string }{
		{"the first", "0.15.3", "", "webhook.a"},
		{"the second", "0.16.0", "", "webhook.b"},
		{"an override in cluster.hcl", "0.15.3", "gate \"webhook\" \"b\" {\n  when = true\n  " +
			"configuration = \"b\"\n}\n", "webhook.a webhook.b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			metallb := stage(t, loaded(t, conditional(test.chart, test.override)), "metallb")
			if got := gateNames(metallb); got != test.want {
				t.Errorf("the stage has the gates %s, want %s", got, test.want)
			}
		})
	}
}

func TestProblemsWithConditions(t *testing.T) {
	when := func(expr string) string {
		return "-- library/networking/metallb/stage.hcl --\nstage {}\ngate \"webhook\" \"a\" {\n" +
			"  configuration = \"a\"\n  when = " + expr + "\n}\n"
	}
	const at = metallb + ":4 | stage metallb: gate webhook.a: "
	run(t, []problemTest{
		{"an output", when(`self.metallb_namespace == "a"`),
			[]string{at + "when is not known before a run | It can name no output."}},
		{"an unknown variable", when(`var.metallb_chart_versio == "a"`),
			[]string{at + `when: unknown var.metallb_chart_versio | Did you mean "metallb_chart_version"?`}},
		{"no truth value", when(`"perhaps"`), []string{at + "unsuitable when"}},
		{"null", when("null"), []string{at + "unsuitable when | a value is needed, not null"}},
	})
}

func TestWhatAPlatformStageInstallsCompletesThePlatform(t *testing.T) {
	c := loaded(t, `
-- clusters/blue/proxmox/cluster.hcl --
stage "infisical" { source = "secrets/infisical" }
stage "bare"      { source = "platform/bare" }
stage "network"   { source = "platform/network" }
stage "upload"    { source = "platform/upload" }
stage "metallb"   { source = "networking/metallb" }
-- clusters/blue/proxmox/terraform.tfvars --
-- library/platform/bare/stage.hcl --
stage {}
-- library/platform/bare/main.tf --
output "kubeconfig" { value = 1 }
-- library/platform/network/stage.hcl --
stage {}
-- library/platform/network/main.tf --
terraform {
  required_providers {
    helm = { source = "hashicorp/helm" }
  }
}
-- library/platform/upload/stage.hcl --
stage {
  inputs = { config = platform.kubeconfig }
}
-- library/platform/upload/main.tf --
variable "config" {}
`)
	for name, want := range map[string]string{"network": "bare", "upload": "bare",
		"metallb": "bare network"} {
		if got := names(stage(t, c, name).Needs); got != want {
			t.Errorf("%s needs %s, want %s", name, got, want)
		}
	}
}

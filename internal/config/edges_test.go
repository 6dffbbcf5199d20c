package config

import "testing"

func TestProblemsWithReferences(t *testing.T) {
	wire := func(expr string) string {
		return "-- library/networking/address-pool/stage.hcl --\nstage {\n  inputs = {\n    namespace = " +
			expr + "\n  }\n}\n"
	}
	gated := func(expr string) string {
		return "-- library/networking/metallb/stage.hcl --\nstage {}\ngate \"webhook\" \"a\" {\n" +
			"  configuration = " + expr + "\n}\n"
	}
	run(t, []problemTest{
		{"an unknown output", wire("networking.metallb_namespce"),
			[]string{
				pool +
					`:3 | stage address-pool: input namespace: unknown output networking.metallb_namespce ` +
					`| Did you mean "metallb_namespace"?`,
			}},
		{"an output of a disabled stage",
			"-- clusters/blue/proxmox/cluster.hcl --\nstage \"bare\" { source = \"platform/bare\" }\n" +
				"stage \"pool\" { source = \"networking/address-pool\" }\nstage \"metallb\" {\n" +
				"  source = \"networking/metallb\"\n  enabled = false\n}\n" +
				"-- clusters/blue/proxmox/terraform.tfvars --\naddress_pool = []\n" +
				"-- library/platform/bare/stage.hcl --\nstage {}\n" +
				"-- library/platform/bare/main.tf --\noutput \"kubeconfig\" { value = 1 }\n",
			[]string{
				pool +
					`:2 | stage pool: input namespace: unknown output networking.metallb_namespace | ` +
					`Stage metallb has it, but is disabled at clusters/blue/proxmox/cluster.hcl:3`,
			}},
		{"an output of a stage that is not in the cluster",
			"-- clusters/blue/proxmox/cluster.hcl --\nstage \"bare\" { source = \"platform/bare\" }\n" +
				"stage \"pool\" { source = \"networking/address-pool\" }\n" +
				"-- clusters/blue/proxmox/terraform.tfvars --\naddress_pool = []\n" +
				"-- library/platform/bare/stage.hcl --\nstage {}\n" +
				"-- library/platform/bare/main.tf --\noutput \"kubeconfig\" { value = 1 }\n",
			[]string{
				pool +
					`:2 | unknown output networking.metallb_namespace | No enabled stage has it. Add to ` +
					`clusters/blue/proxmox/cluster.hcl: stage "metallb" { source = "networking/metallb" }.`,
			}},
		{"a later layer", wire("storage.storage_class_name"),
			[]string{
				pool +
					":3 | storage.storage_class_name belongs to a later layer | the same or an earlier layer",
			}},
		{"the stage's own output", wire("networking.address_pool_name"),
			[]string{
				pool + ":3 | networking.address_pool_name is the stage's own output | self.address_pool_name",
			}},
		{"a whole layer", wire("keys(networking)"),
			[]string{pool + ":3 | networking as a whole | networking.<name>"}},
		{"an unknown root", wire("netwrking.metallb_namespace"),
			[]string{pool + `:3 | unknown name netwrking | Did you mean "networking"?`}},
		{"an unknown part of cluster", wire("cluster.nam"),
			[]string{pool + `:3 | unknown cluster.nam | Did you mean "name"?`}},
		{"self outside a gate", wire("self.address_pool_name"),
			[]string{pool + ":3 | self is not known here | gates only"}},
		{"var of a wired variable in inputs",
			"-- library/networking/metallb/stage.hcl --\nstage {\n  inputs = {\n" +
				"    metallb_repository = networking.address_pool_name\n" +
				"    metallb_chart_version = var.metallb_repository\n  }\n}\n" +
				"-- library/networking/address-pool/stage.hcl --\nstage { inputs = { namespace = \"a\" } }\n",
			[]string{
				metallb + ":4 | input metallb_chart_version: var.metallb_repository is an input itself",
			}},
		{"an unknown variable", gated("var.metallb_chart_versio"),
			[]string{
				metallb +
					`:3 | stage metallb: gate webhook.a: configuration: unknown var.metallb_chart_versio ` +
					`| Did you mean "metallb_chart_version"?`,
			}},
		{"an unknown own output", gated("self.metallb_namspace"),
			[]string{metallb + `:3 | unknown self.metallb_namspace | Did you mean "metallb_namespace"?`}},
		{"an unknown function", gated(`uper("a")`),
			[]string{metallb + `:3 | uper | Did you mean "upper"?`}},
		{"two owners of an output",
			"-- library/networking/address-pool/main.tf --\nvariable \"namespace\" {}\n" +
				"variable \"address_pool\" {}\noutput \"metallb_namespace\" { value = 1 }\n" +
				"-- library/networking/address-pool/stage.hcl --\nstage { inputs = { namespace = \"a\" } }\n",
			[]string{"<embedded>/stages/networking/address-pool/main.tf:3 | layer networking: two stages " +
				"have output metallb_namespace | stage metallb at " +
				"<embedded>/stages/networking/metallb/main.tf:17"}},
	})
}

func TestProblemsWithNeeds(t *testing.T) {
	needs := func(expr string) string {
		return "-- library/networking/metallb/stage.hcl --\nstage {\n  needs = " + expr + "\n}\n"
	}
	run(t, []problemTest{
		{"an unknown layer", needs("[engin]"),
			[]string{metallb + `:2 | stage metallb: needs unknown layer engin | Did you mean "engine"?`}},
		{"a stage instead of a layer", needs("[flux]"),
			[]string{metallb + `:2 | needs unknown layer flux | It is a stage: write needs = [gitops]`}},
		{"a quoted layer", needs(`["engine"]`),
			[]string{metallb + `:2 | needs: not a layer's name | without quotes`}},
		{"no list", needs("engine"), []string{metallb + `:2 | needs: not a list of layers`}},
		{"its own layer", needs("[networking]"),
			[]string{metallb + `:2 | stage metallb: needs its own layer | networking.<output>`}},
		{"a later layer", needs("[storage]"),
			[]string{metallb + `:2 | stage metallb: needs the later layer storage`}},
		{"a gate's later layer",
			"-- library/networking/metallb/stage.hcl --\nstage {}\ngate \"flux\" \"a\" {\n" +
				"  needs = [gitops]\n}\n",
			[]string{metallb + `:3 | stage metallb: gate flux.a: needs the later layer gitops`}},
	})
}

func TestALayerWithoutEnabledStagesMakesNoEdge(t *testing.T) {
	c := loaded(t, `
-- clusters/blue/proxmox/cluster.hcl --
stage "infisical" { source = "secrets/infisical" }
stage "bare"      { source = "platform/bare" }
stage "flux"      { source = "gitops/flux" }
stage "longhorn" {
  source  = "storage/longhorn"
  enabled = false
}
-- clusters/blue/proxmox/terraform.tfvars --
s3_access_key_id = "belongs to a disabled stage and does no harm"
-- library/platform/bare/stage.hcl --
stage {}
-- library/platform/bare/main.tf --
output "kubeconfig" { value = 1 }
`)
	flux := stage(t, c, "flux")
	if got := names(flux.Needs); got != "infisical bare" {
		t.Errorf("flux needs %s", got)
	}
	if len(flux.Gates[0].Needs) != 0 || names(c.Disabled) != "longhorn" {
		t.Errorf("gate needs %s; disabled: %s", names(flux.Gates[0].Needs), names(c.Disabled))
	}
}

func TestNeedsInClusterFileReplacesThoseOfTheStage(t *testing.T) {
	c := loaded(t, `
-- library/networking/metallb/stage.hcl --
stage { needs = [engine] }
-- clusters/blue/proxmox/cluster.hcl --
stage "infisical"        { source = "secrets/infisical" }
stage "bare"             { source = "platform/bare" }
stage "external-secrets" { source = "engine/external-secrets" }
stage "metallb" {
  source = "networking/metallb"
  needs  = [secrets]
}
-- clusters/blue/proxmox/terraform.tfvars --
-- library/platform/bare/stage.hcl --
stage {}
-- library/platform/bare/main.tf --
output "kubeconfig" { value = 1 }
`)
	if got := names(stage(t, c, "metallb").Needs); got != "infisical bare" {
		t.Errorf("metallb needs %s", got)
	}
}

func TestCyclesNameTheirPath(t *testing.T) {
	const wired = "-- library/networking/metallb/stage.hcl --\nstage {\n  inputs = {\n" +
		"    metallb_repository = networking.address_pool_name\n  }\n}\n"
	const gated = "-- library/networking/metallb/stage.hcl --\nstage {}\ngate \"webhook\" \"a\" {\n" +
		"  configuration = networking.address_pool_name\n}\n"
	run(t, []problemTest{
		{"through inputs", wired, []string{metallb + ":3 | cycle: metallb → address-pool → metallb | " +
			"metallb needs address-pool (" + metallb + ":3), address-pool needs metallb (" + pool + ":2)"}},
		{"through a gate", gated, []string{metallb + ":3 | cycle: metallb → address-pool → metallb"}},
	})
}

func TestProblemsWithThePlatform(t *testing.T) {
	const bare = "-- library/platform/bare/stage.hcl --\nstage {}\n-- library/platform/bare/main.tf --\n"
	const small = "-- clusters/blue/proxmox/terraform.tfvars --\n" +
		"-- clusters/blue/proxmox/cluster.hcl --\nstage \"metallb\" { source = \"networking/metallb\" }\n"
	const silent = "-- library/networking/metallb/stage.hcl --\nstage {}\n"
	run(t, []problemTest{
		{"none for a generated provider", small + silent,
			[]string{
				clusterFile +
					":1 | stage metallb: provider registry.terraform.io/hashicorp/helm needs " +
					`platform.kubeconfig | stage "proxmox-talos" { source = "platform/proxmox-talos" }`,
			}},
		{"one without a kubeconfig", small + "stage \"bare\" { source = \"platform/bare\" }\n" +
			silent + bare,
			[]string{
				clusterFile + ":1 | provider registry.terraform.io/hashicorp/helm needs platform.kubeconfig",
			}},
		{"one without a talosconfig for a gate", small + "stage \"bare\" { source = \"platform/bare\" }\n" +
			bare + "output \"kubeconfig\" { value = 1 }\n" +
			"-- library/networking/metallb/stage.hcl --\nstage {}\n" +
			"gate \"talos_etcd\" \"q\" { voters = 3 }\n",
			[]string{metallb + ":2 | stage metallb: gate talos_etcd.q needs platform.talosconfig"}},
		{"a platform that would need itself",
			small + "stage \"bare\" { source = \"platform/bare\" }\n" + silent +
				bare + "output \"kubeconfig\" { value = 1 }\nresource \"helm_release\" \"a\" {}\n",
			[]string{
				clusterFile +
					":2 | stage bare: provider registry.terraform.io/hashicorp/helm would need the " +
					"stage's own kubeconfig | Configure the provider in platform/bare",
			}},
		{"a stage before the platform",
			"-- library/secrets/keys/stage.hcl --\nstage {}\ngate \"flux\" \"a\" {}\n",
			[]string{"<embedded>/stages/secrets/keys/stage.hcl:2 | stage keys: gate flux.a needs the " +
				"platform | secrets, which comes before"}},
	})
}

func TestAModuleThatConfiguresItsProviderIsLeftAlone(t *testing.T) {
	c := loaded(t, `
-- library/networking/metallb/main.tf --
provider "helm" {
  kubernetes = {}
}
resource "helm_release" "metallb" {}
output "metallb_namespace" { value = "metallb-system" }
-- library/networking/metallb/stage.hcl --
stage {}
`)
	s := stage(t, c, "metallb")
	if len(s.InCluster) != 0 || s.NeedsPlatform || names(s.Needs) != "" {
		t.Errorf("in cluster %v, needs platform %v, needs %s", s.InCluster, s.NeedsPlatform, names(s.Needs))
	}
}

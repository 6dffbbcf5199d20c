package config

import (
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// flown is a cluster whose MetalLB and Longhorn Flux brings, and asks for.
const flown = `
-- clusters/blue/proxmox/cluster.hcl --
stage "infisical" { source = "secrets/infisical" }
stage "bare"      { source = "platform/bare" }
stage "flux"      { source = "gitops/flux" }
stage "metallb" {
  source   = "networking/metallb"
  enabled  = false
  asked_by = "flux"
  gate "webhook" "b" { timeout = "2m" }
}
-- clusters/blue/proxmox/terraform.tfvars --
metallb_chart_version = "0.15.3"
-- library/platform/bare/stage.hcl --
stage {}
-- library/platform/bare/main.tf --
output "kubeconfig" { value = 1 }
output "worker_count" { value = 1 }
-- library/networking/metallb/stage.hcl --
stage {
  inputs = { metallb_repository = "https://${cluster.name}.example" }
}
gate "webhook" "a" {
  configuration = "${var.metallb_repository} ${var.metallb_chart_version} ${platform.worker_count}"
}
gate "webhook" "b" {
  configuration = "b"
}
`

func TestDelegatedGatesUseTheVariablesOfTheirOwnStage(t *testing.T) {
	c := loaded(t, flown)
	flux := stage(t, c, "flux")
	var have []string
	for _, g := range flux.Gates {
		have = append(have, g.Name())
	}
	if got, want := strings.Join(have, " "),
		"flux.converged metallb.webhook.a metallb.webhook.b"; got != want {
		t.Fatalf("flux asks %s, want %s", got, want)
	}
	values, diags := flux.Gates[1].Values(Scope{
		Outputs: map[string]map[string]cty.Value{"platform": {"worker_count": cty.NumberIntVal(2)}},
	})
	if got, want := values.String("configuration"), "https://blue.example 0.15.3 2"; diags.HasErrors() ||
		got != want {
		t.Errorf("configuration %q, want %q; %v", got, want, diags)
	}
	if got := names(c.Stages); got != "infisical bare flux" || names(c.Disabled) != "metallb" ||
		c.Disabled[0].Delegate != flux {
		t.Errorf("stages %s; disabled %s, asked by %v", got, names(c.Disabled), c.Disabled[0].Delegate)
	}
	if got := names(flux.Needs); got != "infisical bare" || len(flux.Gates[0].Needs) != 0 {
		t.Errorf("flux needs %s; its gate %s: a disabled stage makes no edge", got,
			names(flux.Gates[0].Needs))
	}
}

func TestDelegatedGatesWaitAsLongAsTheSlowestOwnGate(t *testing.T) {
	gates := stage(t, loaded(t, flown), "flux").Gates
	if own, a, b := gates[0].Policy.Timeout, gates[1].Policy.Timeout,
		gates[2].Policy.Timeout; own != 15*time.Minute || a != own || b != 2*time.Minute {
		t.Errorf("flux.converged waits %s, metallb.webhook.a %s, metallb.webhook.b, which cluster.hcl "+
			"sets, %s", own, a, b)
	}
}

func TestProblemsWithAskedBy(t *testing.T) {
	change := func(old, new string) string {
		if !strings.Contains(flown, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(flown, old, new, 1)
	}
	const at = clusterFile + `:7 | stage metallb: asked_by = `
	run(t, []problemTest{
		{"an enabled stage", change("enabled  = false", "enabled  = true"),
			[]string{at + `"flux": the stage is enabled | Remove asked_by, or set enabled = false`}},
		{"nobody of this name", change(`asked_by = "flux"`, `asked_by = "fluks"`),
			[]string{at + `"fluks": no such stage | Did you mean "flux"?`}},
		{"itself", change(`asked_by = "flux"`, `asked_by = "metallb"`),
			[]string{at + `"metallb": disabled itself | It is disabled at ` + clusterFile + ":4"}},
		{"an earlier layer", change(`asked_by = "flux"`, `asked_by = "bare"`),
			[]string{
				at +
					`"bare": of an earlier layer | gates of layer networking need a stage of the same or ` +
					`a later layer`,
			}},
		{"a stage without gates", change("source   = \"networking/metallb\"", "source   = \"secrets/keys\"") +
			"-- library/secrets/keys/stage.hcl --\nstage {}\n-- clusters/blue/proxmox/terraform.tfvars --\n",
			[]string{at + `"flux": no gates | secrets/keys has no gates`}},
		{"an own output", change(`configuration = "b"`, `configuration = self.metallb_namespace`),
			[]string{
				metallb +
					":8 | stage metallb: gate webhook.b: configuration: self.metallb_namespace is not " +
					"known | Stage metallb is disabled at " + clusterFile +
					":4, so it is not applied and has no outputs. Name a variable of it instead",
			}},
		{"an unknown input",
			change("  gate \"webhook\" \"b\"",
				"  inputs = { metallb_reposit = 1 }\n  gate \"webhook\" \"b\""),
			[]string{
				clusterFile +
					`:8 | stage metallb: unknown input metallb_reposit | Did you mean "metallb_repository"?`,
			}},
		{"a variable without a value", change(`metallb_chart_version = "0.15.3"`, "") +
			"-- library/networking/metallb/main.tf --\nvariable \"metallb_chart_version\" {}\n" +
			"variable \"metallb_repository\" {}\nvariable \"unasked\" {}\n",
			[]string{`<embedded>/stages/networking/metallb/main.tf:1 | variable metallb_chart_version: no ` +
				`value | It is required by stage metallb`}},
		{"what stands on it is castle's",
			change(`stage "flux" `, `stage "pool" { source = "networking/address-pool" }`+"\n"+
				`stage "flux" `) +
				"-- clusters/blue/proxmox/terraform.tfvars --\naddress_pool = []\n" +
				"metallb_chart_version = \"1\"\n",
			[]string{
				pool +
					`:2 | stage pool: input namespace: unknown output networking.metallb_namespace | ` +
					`Stage metallb has it, but is disabled at ` + clusterFile +
					":5. Enable it; or disable pool, too, so that the system that installs metallb " +
					"installs both; or write the value itself in the block of pool in " + clusterFile,
			}},
	})
}

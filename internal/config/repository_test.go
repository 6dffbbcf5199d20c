package config

import (
	"io/fs"
	"testing"
)

func TestClusterReferences(t *testing.T) {
	const more = "-- clusters/green/proxmox/cluster.hcl --\n-- clusters/green/aws/cluster.hcl --\n"
	for reference, want := range map[string][]string{
		"blue":         nil,
		"blue/proxmox": nil,
		"green/aws":    nil,
		"green":        {`- | cluster "green": lives on several platforms; say green/aws or green/proxmox`},
		"bleu": {
			`- | cluster "bleu": not known; there are blue/proxmox, green/aws, green/proxmox; did you ` +
				`mean "blue"?`,
		},
		"blue/proxmux": {
			`- | cluster "blue": no platform "proxmux"; it lives on proxmox; did you mean "proxmox"?`,
		},
		"../blue":       {`- | not known`},
		"blue/proxmox/": {`- | no platform "proxmox/"`},
	} {
		t.Run(reference, func(t *testing.T) {
			expect(t, more, want, func(o *Options) { o.Cluster = reference })
		})
	}
	expect(t, "", []string{"- | no clusters: there is no clusters/<name>/<platform>/cluster.hcl"},
		func(o *Options) { o.Repository = t.TempDir() })
}

func TestTheRepositoryShadowsStagesByFolder(t *testing.T) {
	c := loaded(t, `
-- stages/networking/metallb/stage.hcl --
stage { summary = "My own" }
-- stages/networking/metallb/main.tf --
output "metallb_namespace" { value = "mine" }
`)
	s := stage(t, c, "metallb")
	if s.Summary != "My own" || s.Origin != "stages/networking/metallb" || len(s.Gates) != 0 ||
		len(s.Variables) != 0 {
		t.Errorf("%s from %s, gates %v, variables %v", s.Summary, s.Origin, s.Gates, s.Variables)
	}
	if src, err := fs.ReadFile(s.Module, "main.tf"); err != nil || len(src) == 0 {
		t.Errorf("main.tf: %q %v", src, err)
	}
}

func TestDefaultsOfCastleFileReachStagesWithoutTheirOwn(t *testing.T) {
	c := loaded(t, `
-- castle.hcl --
required_castle_version = ">= 1.2, < 2.0"
defaults {
  timeout = "30m"
  inputs  = { dns_servers = ["10.0.0.${1}"] }
}
-- library/networking/metallb/stage.hcl --
stage { timeout = "5m" }
`)
	if got := stage(t, c, "metallb").Timeout.String(); got != "5m0s" {
		t.Errorf("metallb: %s", got)
	}
	platform := stage(t, c, "proxmox-talos")
	if got := platform.Timeout.String(); got != "30m0s" {
		t.Errorf("proxmox-talos: %s", got)
	}
	if got := inputs(t, platform)["dns_servers"].AsValueSlice()[0].AsString(); got != "10.0.0.1" {
		t.Errorf("dns_servers: %s", got)
	}
}

func TestMistakesInManyFilesAreReportedTogether(t *testing.T) {
	expect(t, `
-- castle.hcl --
required_castle_version = ">= 9"
-- clusters/blue/proxmox/cluster.hcl --
stage "infisical"     { source = "secrets/infisical" }
stage "keys"          { source = "secrets/keys" }
stage "proxmox-talos" { source = "platform/proxmox-talos" }
stage "metallb" {
  source  = "networking/metallb"
  timeout = "never"
}
-- clusters/blue/proxmox/terraform.tfvars --
proxmox_endpoint  = "https://192.168.1.10:8006"
proxmox_api_token = "typed in by hand"
infisical_project = "3f2a"
infisical_env     = "prod"
infisical_folder  = "/blue"
nodes             = { cp-01 = { role = "controlplane" } }
dns_server        = []
-- library/networking/metallb/stage.hcl --
stage { inputs = { metallb_repository = secrets.repository } }
gate "endpoint_slise" "webhook" {}
`, []string{
		"<embedded>/stages/networking/metallb/stage.hcl:1 | unknown output secrets.repository",
		"<embedded>/stages/networking/metallb/stage.hcl:2 | unknown type endpoint_slise",
		"<embedded>/stages/platform/proxmox-talos/variables.tf:8 | variable vip: no value",
		"castle.hcl:1 | version 1.4.0",
		"clusters/blue/proxmox/cluster.hcl:6 | timeout: unsuitable value",
		"clusters/blue/proxmox/terraform.tfvars:2 | set here, but stage proxmox-talos wires it",
		`clusters/blue/proxmox/terraform.tfvars:6 | variable nodes: cp-01: lacks address, vm_id`,
		`clusters/blue/proxmox/terraform.tfvars:7 | variable dns_server: not declared | Did you mean ` +
			`"dns_servers"?`,
	})
}

package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

func TestStagesComeInLayerOrderThenFileOrder(t *testing.T) {
	c := loaded(t, "")
	want := "infisical keys vault-jwt vault-database proxmox-talos external-secrets secret-store metallb " +
		"address-pool longhorn flux"
	if got := names(c.Stages); got != want {
		t.Errorf("stages: %s\nwant:   %s", got, want)
	}
	if c.Name != "blue" || c.Platform != "proxmox" || !c.Protect {
		t.Errorf("cluster: %s/%s protect=%v", c.Name, c.Platform, c.Protect)
	}
}

func TestEdgesAreTheOutputsThatAreRead(t *testing.T) {
	c := loaded(t, "")
	for name, want := range map[string]string{
		"infisical":        "",
		"keys":             "",
		"vault-jwt":        "infisical keys",
		"vault-database":   "infisical keys",
		"proxmox-talos":    "infisical keys",
		"external-secrets": "infisical proxmox-talos",
		"secret-store":     "proxmox-talos external-secrets",
		"metallb":          "proxmox-talos",
		"address-pool":     "proxmox-talos metallb",
		"longhorn":         "infisical proxmox-talos",
		"flux":             "infisical proxmox-talos external-secrets secret-store",
	} {
		if got := names(stage(t, c, name).Needs); got != want {
			t.Errorf("%s needs %q, want %q", name, got, want)
		}
	}
}

func TestGateNeedsHoldBackTheGateAndNotItsStage(t *testing.T) {
	c := loaded(t, "")
	flux := stage(t, c, "flux")
	if got, want := names(flux.Gates[0].Needs), "metallb address-pool longhorn"; got != want {
		t.Errorf("gate %s needs %q, want %q", flux.Gates[0].Name(), got, want)
	}
	if got := flux.Gates[0].Policy.Timeout; got != 15*time.Minute {
		t.Errorf("timeout %s", got)
	}
}

func TestPreflightNeedsOnlyTheStagesItReadsFrom(t *testing.T) {
	c := loaded(t, "")
	p := stage(t, c, "proxmox-talos").Preflights[0]
	if got, want := names(p.Needs), "infisical"; got != want || p.Name() != "vm_ids.free" {
		t.Errorf("%s needs %q, want %q", p.Name(), got, want)
	}
	// keys has not been applied: the preflight does not care.
	sc := Scope{
		Outputs: map[string]map[string]cty.Value{"secrets": {"proxmox_api_token": cty.StringVal("token")}},
	}
	v, diags := p.Values(stage(t, c, "proxmox-talos"), sc)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	var ids map[string]int
	var tags []string
	if err := v.Decode("vm_ids", &ids); err != nil {
		t.Fatal(err)
	}
	if err := v.Decode("tags", &tags); err != nil {
		t.Fatal(err)
	}
	if v.String("api_token") != "token" || ids["cp-01"] != 421 || ids["wk-01"] != 431 ||
		!slices.Equal(tags, []string{"castle", "blue"}) {
		t.Errorf("values: %#v", v)
	}
}

func TestGatesAndAdoptionsResolve(t *testing.T) {
	s := stage(t, loaded(t, ""), "proxmox-talos")
	etcd, diags := s.Gates[0].Values(Scope{}) // reads only tfvars: no run needed
	if diags.HasErrors() || etcd.Int("voters") != 1 {
		t.Errorf("voters: %v %v", etcd, diags)
	}
	api, diags := s.Gates[1].Values(Scope{Self: map[string]cty.Value{"vip": cty.StringVal("192.168.1.50")}})
	if diags.HasErrors() || api.String("address") != "192.168.1.50" || s.Gates[1].Policy.Stable != 3 {
		t.Errorf("address: %v %v, policy %v", api, diags, s.Gates[1].Policy)
	}
	id, diags := s.Adopts[0].ID(s, Scope{})
	if diags.HasErrors() || id != "3f2a:prod:/blue:KUBECONFIG_CONTENT" ||
		s.Adopts[0].Address != "infisical_secret.kubeconfig" {
		t.Errorf("%s: %q %v", s.Adopts[0].Address, id, diags)
	}
}

func TestInputsCarryWiringFileValuesAndDefaults(t *testing.T) {
	in := inputs(t, stage(t, loaded(t, ""), "proxmox-talos"))
	if got := in["proxmox_api_token"].AsString(); got != "secrets.proxmox_api_token" {
		t.Errorf("wired: %s", got)
	}
	if got := in["vip"].AsString(); got != "192.168.1.50" {
		t.Errorf("tfvars: %s", got)
	}
	if got := in["dns_servers"].Index(cty.NumberIntVal(0)).AsString(); got != "9.9.9.9" {
		t.Errorf("default: %s", got)
	}
	worker := in["nodes"].Index(cty.StringVal("wk-01"))
	if got := worker.GetAttr("role").AsString(); got != "worker" {
		t.Errorf("default of an optional attribute: %s", got)
	}
}

func TestMissingOutputNamesStageAndOutput(t *testing.T) {
	s := stage(t, loaded(t, ""), "longhorn")
	_, diags := s.Inputs(Scope{
		Outputs: map[string]map[string]cty.Value{"secrets": {"s3_access_key_id": cty.StringVal("k")}},
	})
	if len(diags) != 1 || render(diags[0]) != "<embedded>/stages/storage/longhorn/stage.hcl:2: "+
		"stage longhorn: secrets.s3_secret_access_key is not known; It is an output of stage infisical, "+
		"which has not been applied or does not set it." {
		t.Errorf("got %v", diags)
	}
}

func TestAFailingExpressionDoesNotShowTheSecretsInIt(t *testing.T) {
	c := loaded(t, `
-- library/networking/metallb/stage.hcl --
stage {}
gate "webhook" "a" { configuration = secrets.git_token.part }
`)
	s := stage(t, c, "metallb")
	_, diags := s.Gates[0].Values(Scope{
		Outputs: map[string]map[string]cty.Value{"secrets": {"git_token": cty.StringVal("hunter2")}},
	})
	var out strings.Builder
	if err := hcl.NewDiagnosticTextWriter(&out, c.Files, 0, false).WriteDiagnostics(diags); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "secrets.git_token.part") ||
		strings.Contains(out.String(), "hunter2") {
		t.Errorf("got %s", out.String())
	}
}

func TestFlagsAndProviders(t *testing.T) {
	c := loaded(t, "")
	platform, metallb := stage(t, c, "proxmox-talos"), stage(t, c, "metallb")
	if !platform.EndsCluster || !stage(t, c, "infisical").Volatile || !stage(t, c, "vault-jwt").Persistent {
		t.Error("a flag was lost")
	}
	if got := platform.Providers["proxmox"]; got != "registry.terraform.io/bpg/proxmox" {
		t.Errorf("provider proxmox: %s", got)
	}
	if len(platform.InCluster) != 0 || !platform.NeedsPlatform {
		t.Errorf("platform: in cluster %v, needs platform %v", platform.InCluster, platform.NeedsPlatform)
	}
	for _, s := range []*Stage{metallb, stage(t, c, "flux")} { // one requires helm, the other uses it
		if !slices.Equal(s.InCluster, []string{"registry.terraform.io/hashicorp/helm"}) || !s.NeedsPlatform {
			t.Errorf("%s: in cluster %v, needs platform %v", s.Name, s.InCluster, s.NeedsPlatform)
		}
	}
	if !platform.Variables["proxmox_api_token"].Sensitive || platform.Variables["vip"].Sensitive {
		t.Error("sensitive variables are not told apart")
	}
	if o := stage(t, c, "infisical").Outputs["git_token"]; !o.Sensitive ||
		o.Description != "Pushes to the cluster's repository" {
		t.Errorf("output git_token: %+v", o)
	}
	if metallb.Origin != "embedded" ||
		metallb.Summary != "MetalLB gives Services of type LoadBalancer an address" {
		t.Errorf("metallb: %s, %s", metallb.Origin, metallb.Summary)
	}
}

func TestStringsHoldsEveryAddressAndHost(t *testing.T) {
	got := loaded(t, "").Strings()
	for _, want := range []string{"https://192.168.1.10:8006", "192.168.1.61",
		"192.168.1.200-192.168.1.220", "9.9.9.9",
		"https://metallb.github.io/metallb", "metallb-webhook-service"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if !slices.IsSorted(got) {
		t.Error("not sorted")
	}
}

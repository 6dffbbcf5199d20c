package state

import (
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

const written = `{
  "version": 4, "terraform_version": "1.11.4", "serial": 12, "lineage": "0c2b",
  "outputs": {
    "vip": {"value": "10.0.0.5", "type": "string"},
    "ports": {"value": [80, 443], "type": ["list", "number"], "sensitive": true},
    "node": {"value": {"name": "cp-1", "labels": {"a": "b"}}, "type": ["object", {"name": "string", ` +
	`"labels": ["map", "string"]}]},
    "none": {"value": null, "type": "dynamic"}
  },
  "resources": [
    {"mode": "data", "type": "infisical_secrets", "name": "all", "provider": ` +
	`"provider[\"registry.terraform.io/infisical/infisical\"]",
     "instances": [{"schema_version": 0, "attributes": {"env_slug": "prod"}}]},
    {"mode": "managed", "type": "proxmox_virtual_environment_vm", "name": "node", "each": "map",
     "provider": "provider[\"registry.terraform.io/bpg/proxmox\"].second",
     "instances": [
       {"index_key": "cp-01", "attributes": {"vm_id": 421}},
       {"index_key": "say \"${hi}\"", "status": "tainted", "attributes": {"vm_id": 422}}]},
    {"module": "module.apps[\"x\"].module.deep", "mode": "managed", "type": "helm_release", "name": "r",
     "provider": "module.apps.provider[\"registry.terraform.io/hashicorp/helm\"]",
     "instances": [{"index_key": 0, "attributes": {}}, {"index_key": 0, "deposed": "3c1a", "attributes": {}}]}
  ]
}`

func TestStateHasAddressesProvidersAndAttributes(t *testing.T) {
	s, err := parse([]byte(written))
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != "1.11.4" {
		t.Errorf("version %q", s.Version)
	}
	var got []Resource
	for _, r := range s.Resources {
		r.Attributes = nil
		got = append(got, r)
	}
	vm := Resource{Type: "proxmox_virtual_environment_vm", Provider: "registry.terraform.io/bpg/proxmox",
		Mode: "managed"}
	release := Resource{Address: `module.apps["x"].module.deep.helm_release.r[0]`, Type: "helm_release",
		Provider: "registry.terraform.io/hashicorp/helm", Mode: "managed"}
	want := []Resource{
		{Address: "data.infisical_secrets.all", Type: "infisical_secrets",
			Provider: "registry.terraform.io/infisical/infisical", Mode: "data"},
		vm, vm, release, release,
	}
	want[1].Address = `proxmox_virtual_environment_vm.node["cp-01"]`
	want[2].Address, want[2].Tainted = `proxmox_virtual_environment_vm.node["say \"$${hi}\""]`, true
	want[4].Deposed = true
	if !slices.EqualFunc(got, want, func(a, b Resource) bool {
		return a.Address == b.Address && a.Type == b.Type && a.Provider == b.Provider && a.Mode == b.Mode &&
			a.Tainted == b.Tainted && a.Deposed == b.Deposed
	}) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if id := s.Resources[1].Attributes["vm_id"]; id != 421.0 {
		t.Errorf("vm_id is %v", id)
	}
	if len(s.Managed()) != 4 {
		t.Errorf("managed: %d", len(s.Managed()))
	}
	if s.Serial != 12 || s.Lineage != "0c2b" || !s.Exists || len(s.SHA256) != 64 {
		t.Errorf("got %+v", s)
	}
}

func TestStateOutputsKeepTheirTypes(t *testing.T) {
	s, err := parse([]byte(written))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Output{
		"vip": {Value: cty.StringVal("10.0.0.5")},
		"ports": {Value: cty.ListVal([]cty.Value{cty.NumberIntVal(80), cty.NumberIntVal(443)}),
			Sensitive: true},
		"node": {Value: cty.ObjectVal(map[string]cty.Value{
			"name":   cty.StringVal("cp-1"),
			"labels": cty.MapVal(map[string]cty.Value{"a": cty.StringVal("b")})})},
		"none": {Value: cty.NullVal(cty.DynamicPseudoType)},
	} {
		got := s.Outputs[name]
		if !got.Value.RawEquals(want.Value) || got.Sensitive != want.Sensitive {
			t.Errorf("%s: got %#v, want %#v", name, got, want)
		}
	}
}

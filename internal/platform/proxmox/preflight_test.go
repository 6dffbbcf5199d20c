package proxmox

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

func TestVMIDsIsMadeFromABlock(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(uuid(ours(421, "blue-cp-01"), values.UUIDOf("our key", "blue-cp-01")))
	values := gate.Values{
		"endpoint": cty.StringVal(d.endpoint), "api_token": cty.StringVal(token),
		"ca_file":    cty.StringVal(d.ca),
		"vm_ids":     cty.MapVal(map[string]cty.Value{"cp-01": cty.NumberIntVal(421)}),
		"tags":       cty.ListVal([]cty.Value{cty.StringVal("castle"), cty.StringVal("blue")}),
		"names":      cty.MapVal(map[string]cty.Value{"cp-01": cty.StringVal("blue-cp-01")}),
		"node_name":  cty.StringVal("pve2"),
		"node_names": cty.MapVal(map[string]cty.Value{"cp-01": cty.StringVal("proxmox")}),
		"resource":   cty.StringVal("module.nodes.proxmox_virtual_environment_vm.this"),

		"uuids_from_key": cty.True,
	}
	kind := PreflightTypes()[0]
	if err := kind.Check(values); err != nil {
		t.Fatal(err)
	}
	preflight, err := kind.New("vm_ids.free", gate.Target{MachineKey: "our key"}, values)
	if err != nil {
		t.Fatal(err)
	}
	found, err := preflight.Inspect(t.Context(), nil, silent)
	if err != nil || len(found.Ours) != 1 ||
		found.Ours[0].Import.Address != `module.nodes.proxmox_virtual_environment_vm.this["cp-01"]` {
		t.Errorf("%s: %+v, %v", preflight.Name, found, err)
	}
}

func TestVMIDsArgumentsAreValidated(t *testing.T) {
	kind := PreflightTypes()[0]
	for _, test := range []struct {
		attribute string
		value     cty.Value
		want      string // part of the error; empty if the value is good
	}{
		{"endpoint", cty.StringVal("https://10.0.0.1:8006"), ""},
		{"endpoint", cty.StringVal("http://10.0.0.1:8006"), "is not an address"},
		{"api_token", cty.StringVal("root@pam!castle=secret"), ""},
		{"api_token", cty.StringVal("secret"), "user@realm!name=secret"},
		{"vm_ids", cty.MapVal(map[string]cty.Value{"a": cty.NumberIntVal(421), "b": cty.NumberIntVal(422)}),
			""},
		{"vm_ids", cty.MapVal(map[string]cty.Value{"a": cty.NumberIntVal(421), "b": cty.NumberIntVal(421)}),
			"a and b have the same id 421"},
		{"vm_ids", cty.MapVal(map[string]cty.Value{"a": cty.NumberIntVal(99)}), "not a virtual machine id"},
		{"vm_ids", cty.MapVal(map[string]cty.Value{"a": cty.NumberFloatVal(421.5)}),
			"not a virtual machine id"},
		{"vm_ids", cty.MapValEmpty(cty.Number), "at least one"},
		{"tags", cty.ListValEmpty(cty.String), "at least one tag"},
		{"resource", cty.StringVal("proxmox_virtual_environment_vm.node"), ""},
		{"resource", cty.StringVal(`module.x["a"].proxmox_virtual_environment_vm.node`), ""},
		{"resource", cty.StringVal("node"), "is not a resource address"},
	} {
		err := kind.Attributes[test.attribute].Valid(test.value)
		if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s = %#v: %v, want %q", test.attribute, test.value, err, test.want)
		}
	}
	names := gate.Values{
		"vm_ids": cty.MapVal(map[string]cty.Value{"cp-01": cty.NumberIntVal(421)}),
		"names":  cty.MapVal(map[string]cty.Value{"cp-1": cty.StringVal("blue-cp-01")}),
	}
	if err := kind.Check(names); err == nil ||
		!strings.Contains(err.Error(), `"cp-1" is not a key of vm_ids`) {
		t.Errorf("a name without an id: %v", err)
	}
}

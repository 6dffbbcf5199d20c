package review

import (
	"maps"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

func TestMachinesThatAPlanDeletes(t *testing.T) {
	resets := map[string]any{"on_destroy": map[string]any{"reset": true}}
	const vm, apply = "proxmox_virtual_environment_vm", "talos_machine_configuration_apply"
	st := &state.State{Resources: []state.Resource{
		{Address: vm + `.node["cp-01"]`, Type: vm}, {Address: vm + `.node["cp-02"]`, Type: vm},
		{Address: apply + `.node["cp-03"]`, Type: apply, Attributes: resets},
		{Address: apply + `.node["w-02"]`, Type: apply},
		{Address: `terraform_data.note["w-03"]`, Type: "terraform_data"},
	}}
	change := func(address, action string) terraform.Change {
		typ, _, _ := strings.Cut(address, ".")
		return terraform.Change{Address: address, Type: typ, Action: action}
	}
	got := deletedMachines([]terraform.Change{
		change(vm+`.node["cp-01"]`, "replace"), change(vm+`.node["cp-02"]`, "delete"),
		change(apply+`.node["cp-03"]`, "delete"), change(apply+`.node["w-02"]`, "delete"),
		change(`terraform_data.note["w-03"]`, "delete"), change(vm+`.node["w-04"]`, "create"),
	}, st, nil)
	maps.DeleteFunc(got, func(_ string, deleted bool) bool { return !deleted })
	if want := map[string]bool{"cp-02": true, "cp-03": true}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Roles that are not known may be those of control planes.
func TestControlPlanesAreTheEndpoints(t *testing.T) {
	outputs := map[string]state.Output{"node_addresses": {Value: cty.MapVal(map[string]cty.Value{
		"a": cty.StringVal("10.0.0.1"), "b": cty.StringVal("10.0.0.2")})}}
	if n := newNodes(outputs); !n.isControlPlane("a") || !n.isControlPlane("b") {
		t.Error("without a talosconfig, a node is called a worker")
	}
	outputs["talosconfig"] = state.Output{Value: cty.StringVal(
		"context: blue\ncontexts: {blue: {endpoints: [10.0.0.1], ca: '', crt: '', key: ''}}")}
	if n := newNodes(outputs); !n.isControlPlane("a") || n.isControlPlane("b") {
		t.Error("control planes are the endpoints")
	}
	machine := func(role, address string) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"role": cty.StringVal(role),
			"address": cty.StringVal(address)})
	}
	outputs = map[string]state.Output{"machines": {Value: cty.ObjectVal(map[string]cty.Value{
		"a": machine("controlplane", "10.0.0.1"), "b": machine("worker", "10.0.0.2")})}}
	if n := newNodes(outputs); !n.isControlPlane("a") || n.isControlPlane("b") ||
		n.addresses["b"] != "10.0.0.2" {
		t.Errorf("a stage of machines knows their roles: %+v", n)
	}
	if n := newNodes(map[string]state.Output{"node_addresses": {Value: cty.NullVal(cty.String)}}); len(
		n.addresses) > 0 {
		t.Errorf("got %v", n.addresses)
	}
}

package review

import (
	"maps"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

func TestMachinesThatAPlanDestroysOrMakes(t *testing.T) {
	resets := map[string]any{"on_destroy": map[string]any{"reset": true}}
	const vm, apply = "proxmox_virtual_environment_vm", "talos_machine_configuration_apply"
	st := &state.State{Resources: []state.Resource{
		{Address: vm + `.node["cp-01"]`, Type: vm}, {Address: vm + `.node["cp-02"]`, Type: vm},
		{Address: vm + `.node["w-01"]`, Type: vm, Tainted: true},
		{Address: apply + `.node["cp-03"]`, Type: apply, Attributes: resets},
		{Address: apply + `.node["w-02"]`, Type: apply},
		{Address: `terraform_data.note["w-03"]`, Type: "terraform_data"},
	}}
	change := func(address, action, reason string) terraform.Change {
		typ, _, _ := strings.Cut(address, ".")
		return terraform.Change{Address: address, Type: typ, Action: action, Reason: reason}
	}
	got := machineFates([]terraform.Change{
		change(vm+`.node["cp-01"]`, "replace", "cannot_update"), change(vm+`.node["cp-02"]`, "delete", ""),
		change(vm+`.node["w-01"]`, "replace", "tainted"), change(apply+`.node["cp-03"]`, "delete", ""),
		change(apply+`.node["w-02"]`, "replace", ""), change(`terraform_data.note["w-03"]`, "delete", ""),
		change(vm+`.node["w-04"]`, "create", ""), change(apply+`.node["w-04"]`, "create", ""),
		change(apply+`.node["w-05"]`, "create", ""), change(apply+`.node["cp-01"]`, "create", ""),
	}, st, nil)
	want := map[string]fate{"cp-01": {how: replaced}, "cp-02": {how: removed}, "cp-03": {how: removed},
		"w-01": {how: replaced, begun: true}, "w-04": {how: gone, begun: true},
		"w-05": {how: gone, begun: true}}
	if !maps.Equal(got, want) {
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

// A control plane that leaves etcd with all others, or the only one, is never destroyed.
func TestTheLastControlPlaneIsNeverDestroyed(t *testing.T) {
	e := &NodeError{Of: 1, Lost: []LostNode{
		{Name: "cp-01", Address: "127.0.0.1", How: replaced, ControlPlane: true},
		{Name: "w-01", How: replaced}}}
	if !e.endsEtcd(t.Context(), "", nil) {
		t.Error("the only control plane may be replaced")
	}
	e.Never = true
	if text := e.Error(); !strings.Contains(text, "no control plane would be left") {
		t.Errorf("got %q", text)
	}
	if e.endsEtcd(t.Context(), "", []string{"127.0.0.2"}) {
		t.Error("one of two control planes may not be replaced")
	}
	e.Lost[1].ControlPlane = true
	if !e.endsEtcd(t.Context(), "", []string{"127.0.0.2"}) {
		t.Error("two of three may be replaced although etcd was not asked")
	}
}

// A killed run may have destroyed the first of two control planes already.
func TestControlPlanesThatAnEarlierRunDestroyedCount(t *testing.T) {
	node := func(name, how string) LostNode { return LostNode{Name: name, How: how, ControlPlane: true} }
	for _, test := range []struct {
		name        string
		lost, begun []LostNode
		stays       []string
		want        bool
	}{
		{"one is gone, and another one is replaced", []LostNode{node("cp-03", replaced)},
			[]LostNode{node("cp-02", gone)}, []string{"127.0.0.2"}, true},
		{"one is half made, and another one is replaced", []LostNode{node("cp-03", replaced)},
			[]LostNode{node("cp-02", replaced)}, []string{"127.0.0.2"}, true},
		{"two are gone, and nothing is destroyed", nil,
			[]LostNode{node("cp-02", gone), node("cp-03", gone)}, []string{"127.0.0.2"}, false},
		{"the rest of one replacement", nil, []LostNode{node("cp-02", replaced)},
			[]string{"127.0.0.2"}, false},
		{"the only one is half made", nil, []LostNode{node("cp-01", replaced)}, nil, false},
		{"the last one is replaced", []LostNode{node("cp-02", replaced)},
			[]LostNode{node("cp-01", gone)}, nil, true},
	} {
		e := &NodeError{Lost: test.lost, Begun: test.begun}
		if got := e.endsEtcd(t.Context(), "", test.stays); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestARefusalNamesControlPlanesThatAreGone(t *testing.T) {
	e := &NodeError{Never: true, Of: 3, create: "castle create blue", again: "castle recreate blue",
		Lost:  []LostNode{{Name: "cp-03", Address: "10.0.0.3", How: replaced, ControlPlane: true}},
		Begun: []LostNode{{Name: "cp-02", Address: "10.0.0.2", How: gone, ControlPlane: true}}}
	text := e.Error()
	for _, want := range []string{"it would destroy 1 of 3 control planes",
		"control plane cp-02 at 10.0.0.2: gone, and this plan makes it again",
		"so that only cp-02 is made: castle create blue"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if strings.Contains(text, "talosctl") {
		t.Errorf("another control plane is to be reset: %q", text)
	}
}

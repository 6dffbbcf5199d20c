package proxmox

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

func TestRecordedReadsAPreflightsValues(t *testing.T) {
	o, ids, err := AccountOf(gate.Values{
		"endpoint": cty.StringVal("https://proxmox.example:8006"), "api_token": cty.StringVal(token),
		"insecure": cty.True,
		"ca_file":  cty.NullVal(cty.String),
		"vm_ids": cty.MapVal(map[string]cty.Value{"b": cty.NumberIntVal(422),
			"a": cty.NumberIntVal(421)}),
	})
	if want := (platform.Account{Endpoint: "https://proxmox.example:8006", Token: token,
		Insecure: true}); err != nil || o != want || !slices.Equal(ids, []int{421, 422}) {
		t.Errorf("%+v, %v, %v", o, ids, err)
	}
}

func TestGuestID(t *testing.T) {
	for _, test := range []struct {
		kind  string
		id    any
		want  int
		guest bool
	}{
		{"proxmox_virtual_environment_vm", json.Number("421"), 421, true},
		{"proxmox_virtual_environment_vm", 421.0, 421, true},
		{"proxmox_virtual_environment_vm", nil, 0, true}, // begun, and its id was never written
		{"proxmox_virtual_environment_container", 421.0, 421, true},
		{"proxmox_virtual_environment_firewall_rules", 421.0, 421, true},
		{"proxmox_virtual_environment_firewall_rules", nil, 0, false},
		{"proxmox_virtual_environment_download_file", nil, 0, false},
		{"talos_machine_bootstrap", 421.0, 0, false},
	} {
		if id, guest := values.GuestID(test.kind, map[string]any{"vm_id": test.id}); id != test.want ||
			guest != test.guest {
			t.Errorf("%s with vm_id %v: %d, %v", test.kind, test.id, id, guest)
		}
	}
}

func TestSameEndpoint(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"https://proxmox.example:8006", "https://Proxmox.example:8006/api2/json", true},
		{"https://proxmox.example:8006", "https://proxmox.example", false},
		{"https://pve1.example:8006", "https://pve2.example:8006", false},
		{"", "", false},
	} {
		if got := SameEndpoint(test.a, test.b); got != test.want {
			t.Errorf("%q and %q: %v", test.a, test.b, got)
		}
	}
}

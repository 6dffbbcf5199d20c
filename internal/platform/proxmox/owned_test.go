package proxmox

import (
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// A state of another module may have the id as text, and no address for a card that is off.
func TestAStateMayHaveTextsAndNulls(t *testing.T) {
	all := values.ObjectsOf([]gate.Known{known(cp01, map[string]any{"vm_id": "421", "name": "blue-cp-01",
		"node_name": "proxmox", "mac_addresses": []any{nil, "bc:24:11:00:00:01"},
		"disk": []any{map[string]any{"datastore_id": "local-lvm", "path_in_datastore": "vm-421-disk-0"}}})})
	if len(all) != 2 || all[0].VM != 421 || !slices.Equal(all[0].MACs, []string{"bc:24:11:00:00:01"}) ||
		all[1].Volume != "local-lvm:vm-421-disk-0" {
		t.Errorf("%+v", all)
	}
	for _, attributes := range []map[string]any{{"vm_id": "x"}, {"vm_id": nil}, {"mac_addresses": nil}} {
		if all := values.ObjectsOf([]gate.Known{known(cp01, attributes)}); len(all) > 0 {
			t.Errorf("%v: %+v", attributes, all)
		}
	}
}

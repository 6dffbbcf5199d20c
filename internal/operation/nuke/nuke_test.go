package nuke

import (
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// stageWith is a stage whose state has a machine for each id; 0 is one whose
// id was never written.
func stageWith(name string, needs []string, ids ...any) *recordedStage {
	d := &recordedStage{Record: state.Record{Name: name, Needs: needs}, state: &state.State{}}
	for _, id := range ids {
		d.state.Resources = append(d.state.Resources, state.Resource{
			Address: "proxmox_virtual_environment_vm.node", Type: "proxmox_virtual_environment_vm",
			Mode: cluster.ManagedMode, Attributes: map[string]any{"vm_id": id},
		})
	}
	return d
}

func TestEndedStagesAreThoseThatNeedTheMachines(t *testing.T) {
	persistent := stageWith("vault", []string{"machines"})
	persistent.Record.Persistent = true
	machines := stageWith("machines", []string{"keys"}, 421.0)
	machines.owner = true
	c := &recordedCluster{stages: []*recordedStage{
		stageWith("keys", nil), machines, stageWith("operator", []string{"machines"}),
		stageWith("pool", []string{"operator"}), persistent,
	}}
	var names []string
	for _, d := range c.ended() {
		names = append(names, d.Record.Name)
	}
	if !slices.Equal(names, []string{"operator", "pool", "machines"}) {
		t.Errorf("ended: %q", names)
	}
}

func TestStateStaysUnlessAllItsMachinesAreDeleted(t *testing.T) {
	const here = "https://proxmox.example:8006"
	n := &Nuke{Endpoint: here, options: Options{Platform: proxmox.Platform{},
		Range: platform.Range{From: 421, To: 432}}, Guests: []platform.Guest{
		{ID: 421}, {ID: 422, Called: "VM 422", Refused: []string{"protected"}},
	}}
	for name, test := range map[string]struct {
		cluster recordedCluster
		want    string // why it stays; archived if empty
	}{
		"all go or are gone": {recordedCluster{platform: proxmox.Platform{}, endpoints: []string{here},
			ids: []int{421, 423}}, ""},
		"one is refused": {recordedCluster{platform: proxmox.Platform{}, endpoints: []string{here},
			ids: []int{421, 422}},
			"VM 422 stays"},
		"one is out of range": {recordedCluster{platform: proxmox.Platform{}, endpoints: []string{here},
			ids: []int{421, 433}},
			"outside the range"},
		"somewhere else": {recordedCluster{platform: proxmox.Platform{}, endpoints: []string{here,
			"https://other.example:8006"},
			ids: []int{421}}, "are at https://other"},
		"nobody knows where": {recordedCluster{ids: []int{421}}, "not recorded"},
		"a state is not clear": {recordedCluster{platform: proxmox.Platform{}, endpoints: []string{here},
			ids:     []int{421},
			unclear: "state unreadable"}, "unreadable"},
	} {
		if got := n.stateOf(&test.cluster).Stays; (got == "") != (test.want == "") ||
			!strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestMachinesAreReadFromTheStateToo(t *testing.T) {
	c := &recordedCluster{}
	d := stageWith("machines", nil, 421.0, 422.0)
	if err := c.machines(d); err != nil || !slices.Equal(c.ids, []int{421, 422}) || !d.owner {
		t.Errorf("%+v, %v", c, err)
	}
	if err := c.machines(stageWith("more", nil, nil)); err == nil {
		t.Error("a machine without an id was overlooked")
	}
}

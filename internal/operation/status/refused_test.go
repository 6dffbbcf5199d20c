package status

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestALookThatFindsAnotherMachineRefuses(t *testing.T) {
	r := &run.Run{Cluster: &cluster.Cluster{Masker: &secret.Masker{}}}
	s := &config.Stage{Name: "machines"}
	const other = "preflight vm_ids.free:\n  VM 421: the state knows this id as another machine"
	update := review.Change{Address: "a.vm", Action: "update", Attributes: []string{"disk"},
		Lost: []string{"disk x is detached"}}
	for _, look := range []review.Look{
		{State: review.Refused, Refused: []string{other}},
		{State: review.Drifted, Refused: []string{other}, Changes: []review.Change{update}},
	} {
		one := StageStatus{Name: "machines", State: Ready}
		looks := map[string]review.Look{"machines": look}
		if err := one.compare(t.Context(), r, s, &state.State{}, looks); err != nil {
			t.Fatal(err)
		}
		all := Status{Stages: []StageStatus{one}}
		all.sumUp()
		if one.State != Refused || one.Reason != other || !all.AnyRefused() || all.AllReady() ||
			all.OnlyGates() || all.Head.Ready.Status != False || all.Head.Pending.Status != True {
			t.Errorf("%s: %+v", look.State, all)
		}
	}
}

func TestADriftedMachineNamesTheDiskThatItHasLost(t *testing.T) {
	d := DriftedObject{Object: "a.vm", Fields: []string{"disk"}, Lost: []string{"disk x is detached"}}
	if text := d.String(); text != "a.vm has changed: disk; disk x is detached" {
		t.Error(text)
	}
}

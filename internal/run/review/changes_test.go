package review

import (
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

func TestLinesExplainEachChange(t *testing.T) {
	got := Lines([]Change{
		{Address: "a.new", Action: "create"},
		{Address: "a.lost", Action: "create", Absent: true},
		{Address: "a.set", Action: "update", Reason: "", Attributes: []string{"cpu", "memory"},
			Paths: []string{"cpu.cores", "memory"}, Drift: []string{"memory"}},
		{Address: "a.big", Action: "update", Paths: strings.Fields("a b c d e f g h")},
		{Address: "a.forced", Action: "replace", Reason: "cannot_update", Paths: []string{"spec.image"}},
		{Address: "a.both", Action: "replace", Reason: "cannot_update", Paths: []string{"id", "size"},
			Drift: []string{"id"}},
		{Address: "a.torn", Action: "replace", Reason: "tainted"},
		{Address: "a.old", Action: "delete", Reason: "delete_because_each_key"},
		{Address: "a.odd", Action: "delete", Reason: "delete_because_of_rain"},
		{Address: "a.to", Action: "move", From: "a.from"},
		{Address: "a.moved", Action: "update", From: "b.moved", Paths: []string{"name"}},
		{Address: "a.there", Action: "import", Imported: true},
		{Address: "a.left", Action: "forget"},
		{Address: "data.a.b", Action: "read", Reason: "read_because_config_unknown"},
		{Address: "pod a/b", Action: Restore, Reason: Absent, Absent: true},
	})
	want := []string{
		"  + a.new",
		"  + a.lost    drift: absent",
		"  ~ a.set     cpu.cores; drift: memory",
		"  ~ a.big     a, b, c, d, e, f and 2 more",
		"-/+ a.forced  replaced, because spec.image changes",
		"-/+ a.both    replaced, because id, size change; drift: id",
		"-/+ a.torn    replaced, because it is tainted",
		"  - a.old     for_each no longer includes its key",
		"  - a.odd     delete because of rain",
		"  = a.to      moved from a.from",
		"  ~ a.moved   moved from b.moved; name",
		"  > a.there   imported",
		"  . a.left    removed from the state, not destroyed",
		" <= data.a.b  read in the create, when its arguments are known",
		"  ~ pod a/b   drift: absent",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAnEmptyDiskBesideADetachedOneIsALoss(t *testing.T) {
	detached := []gate.Detached{{Address: "a.vm", Text: "disk x is detached"}}
	for _, test := range []struct {
		address, action, path string
		lost                  bool
	}{
		{"a.vm", "update", "disk[1]", true},
		{"a.vm", "update", "disk", true},
		{"a.vm", "update", "disk[1].interface", true},
		{"a.vm", "update", "disk[1].size", false},
		{"a.vm", "update", "cdrom[1]", false},
		{"a.other", "update", "disk[1]", false},
		{"a.vm", "replace", "disk[1]", false}, // the whole machine is lost
	} {
		changes := []Change{{Address: test.address, Action: test.action, Paths: []string{"cpu", test.path}}}
		MarkLost(changes, detached)
		if lost := len(changes[0].Lost) == 1; lost != test.lost {
			t.Errorf("%s %s of %s: lost %v", test.action, test.path, test.address, changes[0].Lost)
		}
		lines := Lines(changes)
		if shown := len(lines) == 2 &&
			lines[1] == "      disk x is detached"; shown != test.lost {
			t.Errorf("%q", lines)
		}
	}
}

func TestAChangeHasThePartThatRevertsDrift(t *testing.T) {
	drift := map[string]planned.Drift{
		"a.vm":   {Address: "a.vm", Paths: []string{"disk", "etag", "memory.dedicated"}},
		"a.gone": {Address: "a.gone", Absent: true},
		"a.left": {Address: "a.left", Paths: []string{"etag"}},
		"a.all":  {Address: "a.all", Paths: []string{"id"}},
	}
	vm := Change{Address: "a.vm", Action: "update",
		Paths: []string{"disk[0].size", "disk_id", "memory.dedicated"}}
	gone := Change{Address: "a.gone", Action: "create"}
	other := Change{Address: "a.other", Action: "update", Paths: []string{"etag"}}
	all := Change{Address: "a.all", Action: "replace", Paths: []string{"name"}}
	for _, c := range []*Change{&vm, &gone, &other, &all} {
		c.attribute(drift)
	}
	if !slices.Equal(vm.Drift, []string{"disk[0].size", "memory.dedicated"}) || vm.Absent {
		t.Errorf("a.vm: %+v", vm)
	}
	if !gone.Absent || other.Drift != nil || all.Drift != nil {
		t.Errorf("%+v, %+v, %+v", gone, other, all)
	}
	left := drift["a.vm"].Paths
	if len(drift) != 2 || !slices.Equal(left, []string{"etag"}) || drift["a.left"].Paths == nil {
		t.Errorf("no change reverts %+v", drift)
	}
}

func TestACertificateThatIsIssuedAnewIsNoLoss(t *testing.T) {
	changes := []terraform.Change{
		{Address: "tls_locally_signed_cert.a", Type: "tls_locally_signed_cert", Action: "replace"},
		{Address: "tls_private_key.a", Type: "tls_private_key", Action: "replace"},
		{Address: "tls_locally_signed_cert.b", Type: "tls_locally_signed_cert", Action: "delete"},
	}
	var lost []string
	for _, c := range Losses(changes, &state.State{}, &state.Intent{}) {
		lost = append(lost, c.Address)
	}
	if want := []string{"tls_private_key.a", "tls_locally_signed_cert.b"}; !slices.Equal(lost, want) {
		t.Errorf("got %v, want %v", lost, want)
	}
}

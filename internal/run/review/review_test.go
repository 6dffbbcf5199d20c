package review

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

func TestRemainingChangesOfAReviewedPlan(t *testing.T) {
	reviewed := []Change{
		{
			Address: "a.made",
			Action:  "create",
		}, {Address: "a.taken", Action: "adopt"}, {Address: "a.changed", Action: "update"},
		{Address: "a.renewed", Action: "replace"}, {Address: "a.gone", Action: "delete"},
	}
	for _, test := range []struct {
		address, action, reason string
		want                    bool
	}{
		{"a.made", "create", "", true},
		{"a.made", "update", "", true}, // a killed run had created it; it is imported
		{"a.made", "replace", "tainted", true},
		{"a.made", "replace", "cannot_update", false},
		{"a.made", "delete", "", false},
		{"a.taken", "update", "", true},
		{"a.taken", "replace", "cannot_update", false},
		{"a.changed", "update", "", true},
		{"a.changed", "replace", "cannot_update", false},
		{"a.renewed", "create", "", true}, // the old one is gone already
		{"a.renewed", "delete", "", true}, // the new one is there already
		{"a.gone", "delete", "", true},
		{"a.gone", "create", "", false},
		{"a.other", "create", "", false},
		{"a.other", "replace", "tainted", false},
		{"a.other", "read", "", true},
	} {
		c := terraform.Change{Address: test.address, Action: test.action, Reason: test.reason}
		if got := IsRemaining(c, reviewed); got != test.want {
			t.Errorf("%s of %s (%s): %v, want %v", test.action, test.address, test.reason, got, test.want)
		}
	}
}

func TestOnlyCreatesRefusesChangesOfExistingResources(t *testing.T) {
	for _, test := range []struct {
		action, reason string
		imported, want bool
	}{
		{action: "create", want: true},
		{action: "read", want: true},
		{action: "update"},
		{action: "update", imported: true, want: true},
		{action: "replace", reason: "cannot_update"},
		{action: "replace", reason: "cannot_update", imported: true},
		{action: "replace", reason: "tainted", want: true},
		{action: "delete"},
		{action: "forget"},
	} {
		if got := OnlyCreates(terraform.Change{Action: test.action, Reason: test.reason},
			test.imported); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestDifferingIgnoresChangesThatThePlanBegan(t *testing.T) {
	facts := func(token, st, module string) *state.Fingerprint {
		f := new(state.Fingerprint)
		f.Add("variable token", []byte(token))
		f.Add("state", []byte(st))
		f.Add("module/main.tf", []byte(module))
		return f
	}
	then, now := facts("1", "1", "1"), facts("2", "2", "2")
	for _, test := range []struct {
		begun, after bool
		want         int
	}{{false, false, 3}, {true, false, 2}, {false, true, 2}, {true, true, 1}} {
		if got := Differing(now, then, test.begun, test.after); len(got) != test.want {
			t.Errorf("begun %v, after %v: %v", test.begun, test.after, got)
		}
	}
}

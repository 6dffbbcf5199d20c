package talos_test

import (
	"slices"
	"testing"
)

func TestLastLearnerIsHeldOnceForItsDuration(t *testing.T) {
	l := newLab(t)
	var called []string
	l.fleet.HoldLastLearner(5*step, func() { called = append(called, "begins") },
		func() { called = append(called, "ends") })
	l.raise(3, 1)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(5*step - 1) // the third would be promoted at the fifth
	if got := l.members(l.address(1)); len(called) != 0 || got != "blue-01, blue-02, blue-03 learner" {
		t.Fatalf("called %v with members %s", called, got)
	}
	l.clock.advance(1)
	if got := l.members(l.address(1)); !slices.Equal(called, []string{"begins"}) ||
		got != "blue-01, blue-02, blue-03 learner" {
		t.Fatalf("called %v with members %s", called, got)
	}
	l.clock.advance(5*step - 1) // its time counts from the look above
	if !slices.Equal(called, []string{"begins"}) {
		t.Fatalf("called %v", called)
	}
	l.clock.advance(1)
	if got := l.members(l.address(1)); !slices.Equal(called, []string{"begins", "ends"}) ||
		got != "blue-01, blue-02, blue-03" {
		t.Fatalf("called %v with members %s", called, got)
	}
}

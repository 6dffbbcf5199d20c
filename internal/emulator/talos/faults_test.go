package talos_test

import (
	"slices"
	"testing"
)

func TestTheLastLearnerIsHeldOnceAndForAsLongAsItWasSaid(t *testing.T) {
	l := newLab(t)
	var said []string
	l.HoldLastLearner(5*step, func() { said = append(said, "begins") }, func() { said = append(said, "ends") })
	l.raise(3, 1)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(5*step - 1) // the third would be promoted at the fifth
	if got := l.members(l.address(1)); len(said) != 0 || got != "blue-01, blue-02, blue-03 learner" {
		t.Fatalf("said %v with members %s", said, got)
	}
	l.clock.advance(5 * step)
	if got := l.members(l.address(1)); !slices.Equal(said, []string{"begins"}) || got != "blue-01, blue-02, blue-03 learner" {
		t.Fatalf("said %v with members %s", said, got)
	}
	l.clock.advance(1)
	if got := l.members(l.address(1)); !slices.Equal(said, []string{"begins", "ends"}) || got != "blue-01, blue-02, blue-03" {
		t.Fatalf("said %v with members %s", said, got)
	}
}

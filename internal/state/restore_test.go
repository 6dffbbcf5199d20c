package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func oldest(t *testing.T, s *Stage) *Copy {
	t.Helper()
	copies, err := s.Copies().Snapshots()
	if err != nil || len(copies) == 0 {
		t.Fatalf("%d snapshots, %v", len(copies), err)
	}
	return copies[len(copies)-1]
}

func TestRestoreKeepsThePreviousStateAndSurvivesACrash(t *testing.T) {
	_, s := locked(t)
	snapshotted(t, s, 1)
	write(t, s.StatePath(), goodState(2)) // of which there is no snapshot yet
	aside, err := s.Copies().Restore(oldest(t, s))
	if err != nil || len(aside) != 1 || content(t, aside[0]) != string(goodState(2)) {
		t.Fatalf("kept %q, %v", aside, err)
	}
	write(t, s.StatePath(), nil)
	if st, err := s.State(); err != nil || st.Serial != 1 {
		t.Errorf("after a crash: %+v, %v", st, err)
	}
}

func TestRestoreOfTheOldestOfAFullRing(t *testing.T) {
	d, s := locked(t)
	d.KeepSnapshots(2)
	for serial := 1; serial <= 2; serial++ {
		snapshotted(t, s, serial)
	}
	write(t, s.StatePath(), goodState(99)) // keeping it drops the copy that is restored
	if _, err := s.Copies().Restore(oldest(t, s)); err != nil {
		t.Fatal(err)
	}
	if st, err := s.State(); err != nil || st.Serial != 1 {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestRestoreRefusesAnotherLineage(t *testing.T) {
	for name, present := range map[string][]byte{"readable": goodState(2), "cut short": goodState(2)[:50]} {
		t.Run(name, func(t *testing.T) {
			_, s := locked(t)
			snapshotted(t, s, 1)
			write(t, s.StatePath(), present)
			foreign := oldest(t, s)
			foreign.State.Lineage = "another"
			_, err := s.Copies().Restore(foreign)
			if err == nil || !strings.Contains(err.Error(), `another state: its lineage is "another"`) {
				t.Errorf("got %v", err)
			}
			if content(t, s.StatePath()) != string(present) {
				t.Error("the state was replaced")
			}
		})
	}
}

func TestRestoringASnapshotKeepsTheErroredState(t *testing.T) {
	_, s := locked(t)
	snapshotted(t, s, 1)
	snapshotted(t, s, 2)
	write(t, filepath.Join(s.Work(), "errored.tfstate"), goodState(3))
	aside, err := s.Copies().Restore(oldest(t, s))
	if err != nil || len(aside) != 2 || content(t, aside[1]) != string(goodState(3)) {
		t.Fatalf("kept %q, %v", aside, err)
	}
	if st, err := s.State(); err != nil || st.Serial != 1 {
		t.Errorf("the next run takes serial %d, %v", st.Serial, err)
	}
}

func TestAnErroredStateIsRefusedUnlessItFollows(t *testing.T) {
	foreign := []byte(strings.Replace(string(goodState(9)), `"lineage":"l"`, `"lineage":"another"`, 1))
	for name, c := range map[string]struct{ present, errored []byte }{
		"of another lineage":                       {goodState(2), foreign},
		"of another lineage, the state unreadable": {goodState(2)[:50], foreign},
		"of the same serial":                       {goodState(2), append(goodState(2), '\n')},
		"older than the snapshot of an empty one":  {nil, goodState(1)},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := locked(t)
			snapshotted(t, s, 2)
			write(t, s.StatePath(), c.present)
			rescued := filepath.Join(s.Work(), "errored.tfstate")
			write(t, rescued, c.errored)
			if st, err := s.State(); err == nil || !strings.Contains(err.Error(), rescued) {
				t.Errorf("got %+v, %v", st, err)
			}
			if content(t, s.StatePath()) != string(c.present) || content(t, rescued) != string(c.errored) {
				t.Error("a state was changed")
			}
		})
	}
}

func TestAnErroredStateIsRestoredOnce(t *testing.T) {
	_, s := locked(t)
	snapshotted(t, s, 1)
	rescued := filepath.Join(s.Work(), "errored.tfstate")
	write(t, rescued, goodState(2))
	write(t, s.StatePath(), goodState(2)) // a castle was killed between writing and removing
	if st, err := s.State(); err != nil || st.Serial != 2 || exists(rescued) {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestCheckStateRepairsNothingAndNamesTheFix(t *testing.T) {
	_, s := locked(t)
	if err := s.CheckState(); err != nil {
		t.Errorf("never applied: %v", err)
	}
	snapshotted(t, s, 4)
	if err := s.CheckState(); err != nil {
		t.Errorf("good: %v", err)
	}
	write(t, s.StatePath(), goodState(5)[:50])
	if err := s.CheckState(); err == nil || !strings.Contains(err.Error(), "serial 4") ||
		!strings.Contains(err.Error(), "castle state restore blue/proxmox platform") {
		t.Errorf("unreadable: %v", err)
	}
	write(t, filepath.Join(s.Work(), "errored.tfstate"), goodState(5))
	if err := s.CheckState(); err == nil ||
		!strings.Contains(err.Error(), "castle state restore blue/proxmox platform --errored") {
		t.Errorf("not the newest: %v", err)
	}
	if content(t, s.StatePath()) != string(goodState(5)[:50]) {
		t.Error("the state was repaired")
	}
}

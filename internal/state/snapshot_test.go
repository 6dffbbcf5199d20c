package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func goodState(serial int) []byte {
	return fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":"l","outputs":{},
		"resources":[{"mode":"managed","type":"terraform_data","name":"a","provider":`+
		`"provider[\"terraform.io/builtin/terraform\"]","instances":[{"attributes":{"id":"1"}}]}]}`, serial)
}

func withoutResource(serial int) string {
	return strings.Replace(string(goodState(serial)), `[{"attributes":{"id":"1"}}]`, `[]`, 1)
}

func locked(t *testing.T) (*Dir, *Stage) {
	t.Helper()
	d := open(t)
	lock, err := d.Lock("run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
	return d, made(t, d, "platform")
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func snapshotted(t *testing.T, s *Stage, serial int) {
	t.Helper()
	write(t, s.StatePath(), goodState(serial))
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotKeepsTheNewestOnes(t *testing.T) {
	d, s := locked(t)
	d.KeepSnapshots(20)
	for serial := range 25 {
		snapshotted(t, s, serial)
		snapshotted(t, s, serial) // the same again takes no place
	}
	paths, err := s.Copies().paths()
	if err != nil || len(paths) != 20 {
		t.Fatalf("%d snapshots, %v", len(paths), err)
	}
	oldest, err := os.ReadFile(paths[0])
	if err != nil || string(oldest) != string(goodState(5)) {
		t.Errorf("the oldest is %s, %v", oldest, err)
	}
}

func TestSnapshotRefusesAStateThatCannotBeRead(t *testing.T) {
	_, s := locked(t)
	snapshotted(t, s, 1)
	write(t, s.StatePath(), goodState(2)[:50])
	var unreadable *UnreadableError
	if err := s.Snapshot(); !errors.As(err, &unreadable) {
		t.Errorf("got %v", err)
	}
}

func TestAnUnreadableStateIsRestoredFromTheNewestGoodSnapshot(t *testing.T) {
	for name, broken := range map[string][]byte{
		"cut short":       goodState(9)[:100],
		"empty":           {},
		"another version": []byte(`{"version":5,"serial":9,"lineage":"l"}`),
		"not a state":     []byte(`{}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, s := locked(t)
			snapshotted(t, s, 7)
			snapshotted(t, s, 8)
			paths, err := s.Copies().paths()
			if err != nil {
				t.Fatal(err)
			}
			write(t, paths[1], []byte("a bad disk")) // the newest is not good
			write(t, s.StatePath(), broken)
			st, err := s.State()
			if err != nil {
				t.Fatal(err)
			}
			if st.Serial != 7 || len(st.Resources) != 1 || !strings.Contains(st.Notice, "restored serial 7") {
				t.Errorf("got serial %d with %d resources, notice %q", st.Serial, len(st.Resources),
					st.Notice)
			}
			if data, err := os.ReadFile(s.StatePath()); err != nil || string(data) != string(goodState(7)) {
				t.Errorf("on disk: %s, %v", data, err)
			}
			if got := unreadable(t, s); len(got) != 1 || got[0] != string(broken) {
				t.Errorf("the broken one: %q", got)
			}
			if st, err := s.State(); err != nil || st.Notice != "" {
				t.Errorf("read again: notice %q, %v", st.Notice, err)
			}
		})
	}
}

// unreadable are the states that were put aside.
func unreadable(t *testing.T, s *Stage) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(s.StatePath() + ".unreadable-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(data))
	}
	return all
}

func TestEveryUnreadableStateIsKept(t *testing.T) {
	_, s := locked(t)
	snapshotted(t, s, 7)
	for _, broken := range []string{"one", "another"} {
		write(t, s.StatePath(), []byte(broken))
		if _, err := s.State(); err != nil {
			t.Fatal(err)
		}
	}
	if got := unreadable(t, s); len(got) != 2 || got[0] != "one" || got[1] != "another" {
		t.Errorf("kept: %q", got)
	}
}

func TestAStateThatVanishedIsRestored(t *testing.T) {
	_, s := locked(t)
	snapshotted(t, s, 3)
	if err := os.Remove(s.StatePath()); err != nil {
		t.Fatal(err)
	}
	if st, err := s.State(); err != nil || st.Serial != 3 || st.Notice == "" {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestAnUnreadableStateWithoutASnapshotIsRefusedAndStays(t *testing.T) {
	_, s := locked(t)
	broken := goodState(1)[:60]
	write(t, s.StatePath(), broken)
	var unreadable *UnreadableError
	if _, err := s.State(); !errors.As(err, &unreadable) || !strings.Contains(err.Error(), "no snapshot") {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(s.StatePath()); err != nil || string(data) != string(broken) {
		t.Errorf("on disk: %s, %v", data, err)
	}
}

func TestAnEmptyStateOfAReadyStageIsUnreadable(t *testing.T) {
	_, s := locked(t)
	if err := s.Fingerprint().Write(Fingerprint{}); err != nil {
		t.Fatal(err)
	}
	write(t, s.StatePath(), nil)
	var unreadable *UnreadableError
	if st, err := s.State(); !errors.As(err, &unreadable) {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestLastKnownReadsTheSnapshotAndRepairsNothing(t *testing.T) {
	s := made(t, open(t), "platform")
	snapshotted(t, s, 6)
	write(t, s.StatePath(), nil)
	st, err := s.LastKnown()
	if err != nil || st.Serial != 6 || !strings.Contains(st.Notice, "the next run restores serial 6") {
		t.Errorf("got %+v, %v", st, err)
	}
	if data, err := os.ReadFile(s.StatePath()); err != nil || len(data) != 0 {
		t.Errorf("on disk: %q, %v", data, err)
	}
}

func TestAStateBeforeTheFirstApplyDoesNotExist(t *testing.T) {
	_, s := locked(t)
	for _, prepare := range []func(){
		func() {},
		func() { write(t, s.StatePath(), nil) }, // Terraform took its lock and was killed
	} {
		prepare()
		st, err := s.State()
		if err != nil || st.Exists || len(st.Resources) != 0 || st.Outputs == nil {
			t.Errorf("got %+v, %v", st, err)
		}
		if err := s.Snapshot(); err != nil {
			t.Errorf("snapshot: %v", err)
		}
	}
}

func TestWithoutTheClusterLockNothingIsRepaired(t *testing.T) {
	d := open(t)
	s := made(t, d, "platform")
	snapshotted(t, s, 1)
	write(t, s.StatePath(), goodState(2)[:50]) // or another castle's Terraform is just writing it
	var unreadable *UnreadableError
	if _, err := s.State(); !errors.As(err, &unreadable) {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(s.StatePath()); err != nil || string(data) != string(goodState(2)[:50]) {
		t.Errorf("on disk: %s, %v", data, err)
	}
}

func TestStateRestoresAnErroredState(t *testing.T) {
	_, s := locked(t)
	rescued := filepath.Join(s.Work(), "errored.tfstate")
	snapshotted(t, s, 4)
	write(t, s.StatePath(), nil) // the disk was full
	write(t, rescued, goodState(5))
	st, err := s.State()
	if err != nil || st.Serial != 5 || !strings.Contains(st.Notice, "serial 5") {
		t.Fatalf("got %+v, %v", st, err)
	}
	if exists(rescued) {
		t.Error("errored.tfstate is still there")
	}

	write(t, rescued, goodState(3)) // older than the state: either can be right
	if _, err := s.State(); err == nil || !strings.Contains(err.Error(), rescued) {
		t.Errorf("older: got %v", err)
	}
}

func TestAnIncompleteErroredStateIsKept(t *testing.T) {
	for name, left := range map[string]string{"empty": "", "cut short": "{"} {
		t.Run(name, func(t *testing.T) {
			_, s := locked(t)
			rescued := filepath.Join(s.Work(), "errored.tfstate")
			snapshotted(t, s, 4)
			write(t, s.StatePath(), nil) // the disk was full, and so it was for what Terraform leaves then
			write(t, rescued, []byte(left))
			st, err := s.State()
			if err != nil || st.Serial != 4 ||
				!strings.Contains(st.Notice, "Terraform could not write the state") ||
				!strings.Contains(st.Notice, "restored serial 4") {
				t.Errorf("got %+v, %v", st, err)
			}
			kept, err := filepath.Glob(s.StatePath() + ".errored-*")
			if err != nil || len(kept) != 1 || content(t, kept[0]) != left || exists(rescued) {
				t.Errorf("kept %q, %v", kept, err)
			}
		})
	}
}

func TestNewestSnapshotHasTheHighestSerialNotTheLatestName(t *testing.T) {
	d, s := locked(t)
	d.KeepSnapshots(3)
	for serial := range 3 {
		snapshotted(t, s, serial+1)
	}
	future := filepath.Join(s.Dir(), "snapshots", "29990101T000000.000000000.tfstate")
	write(t, future, goodState(1))
	if good, err := s.Copies().Newest(); err != nil || good.State.Serial != 3 {
		t.Errorf("%+v, %v", good, err)
	}
	snapshotted(t, s, 4) // the worst make room, and not the last ones
	var serials []uint64
	all, err := s.Copies().Snapshots()
	for _, one := range all {
		serials = append(serials, one.State.Serial)
	}
	if err != nil || !slices.Equal(serials, []uint64{4, 3, 2}) {
		t.Errorf("%d, %v", serials, err)
	}
	write(t, future, []byte(strings.Replace(string(goodState(9)), `"l"`, `"another"`, 1)))
	write(t, s.StatePath(), []byte("torn"))
	if st, err := s.State(); err != nil || st.Serial != 4 || st.Lineage != "l" {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestAfterARestoreHigherSerialsDoNotComeBack(t *testing.T) {
	_, s := locked(t)
	for serial := range 5 {
		snapshotted(t, s, serial+1)
	}
	all, err := s.Copies().Snapshots()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Copies().Restore(all[3]); err != nil {
		t.Fatal(err)
	}
	write(t, s.StatePath(), nil)
	if st, err := s.State(); err != nil || st.Serial != 2 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestStateThatNoRunCanHaveLeftIsRefused(t *testing.T) {
	none := withoutResource(7)
	for name, c := range map[string]struct {
		state, want string
	}{
		"lost":    {none, "it lacks terraform_data.a"},
		"later":   {strings.Replace(none, `:7,`, `:9,`, 1), "it lacks terraform_data.a"},
		"other":   {strings.Replace(string(goodState(7)), `"id":"1"`, `"id":"2"`, 1), "same serial"},
		"earlier": {string(goodState(6)), "its serial is 6 and was 7"},
		"lineage": {strings.Replace(string(goodState(8)), `"l"`, `"m"`, 1), `its lineage is "m" and was "l"`},
	} {
		d, s := locked(t)
		snapshotted(t, s, 6)
		snapshotted(t, s, 7)
		write(t, s.StatePath(), []byte(c.state))
		_, err := s.State()
		unreadable, is := errors.AsType[*UnreadableError](err)
		if !is || !strings.Contains(err.Error(), c.want) || unreadable.Path != s.StatePath() ||
			!strings.Contains(unreadable.Fix, "castle state restore "+d.cluster+" platform") {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Snapshot(); !errors.As(err, new(*UnreadableError)) {
			t.Errorf("%s: snapshot: %v", name, err)
		}
		if now, err := os.ReadFile(s.StatePath()); err != nil || string(now) != c.state {
			t.Errorf("%s: the state is %s, %v", name, now, err)
		}
		good, err := s.Copies().Newest()
		if err != nil || good == nil || good.State.Serial != 7 {
			t.Fatalf("%s: %+v, %v", name, good, err)
		}
		if _, err := s.Copies().Restore(good); err != nil {
			t.Errorf("%s: restore: %v", name, err)
		}
		if st, err := s.State(); err != nil || st.Serial != 7 || !st.Has("terraform_data.a") {
			t.Errorf("%s: restored: %+v, %v", name, st, err)
		}
	}
}

func TestStateThatTerraformMayHaveChangedIsRead(t *testing.T) {
	_, s := locked(t)
	snapshotted(t, s, 7)
	write(t, s.StatePath(), goodState(8)) // by a Terraform of the user's own
	if st, err := s.State(); err != nil || st.Serial != 8 {
		t.Errorf("%+v, %v", st, err)
	}
	none := withoutResource(9)
	if err := BeginChange(s); err != nil {
		t.Fatal(err)
	}
	write(t, s.StatePath(), []byte(none))
	if st, err := s.State(); err != nil || st.Serial != 9 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	write(t, s.StatePath(), goodState(9))
	if _, err := s.State(); !errors.As(err, new(*UnreadableError)) {
		t.Errorf("after the snapshot: %v", err)
	}
}

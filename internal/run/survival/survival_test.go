package survival

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// store is an object store with saves, of which some are not complete.
type store struct {
	survivor.Survivor
	saves     []survivor.Save
	broken    []string // ids
	away      error
	announced []survivor.Birth
	inUse     bool
	frozen    bool // nothing was written since the save
}

func (s *store) Path(birth string) string { return "/database/" + birth }

func (s *store) Saves(context.Context) ([]survivor.Save, error) { return s.saves, s.away }

func (s *store) Prove(_ context.Context, save survivor.Save) (survivor.Proof, error) {
	if slices.Contains(s.broken, save.ID) {
		return survivor.Proof{}, errors.New("segment 000000010000000000000004 is not archived")
	}
	return survivor.Proof{Set: "1F"}, s.away
}

func (s *store) Options(save survivor.Save, set string, exactly bool) string {
	if exactly {
		return "exactly " + save.ID + " from " + set
	}
	return "all"
}

func (s *store) Announce(_ context.Context, b survivor.Birth) error {
	s.announced = append(s.announced, b)
	return nil
}

func (s *store) Freeze(context.Context) (bool, error) {
	if !s.inUse {
		return false, errors.New("no answer")
	}
	return !s.frozen, nil
}

func (s *store) InUse(context.Context) (bool, error) { return s.inUse, s.away }

// save is one of the cluster tazlab.
func save(id string, age time.Duration) survivor.Save {
	return survivor.Save{ID: id, Cluster: "tazlab/proxmox", Name: "database", Path: "/database/" + id,
		Time: time.Now().Add(-age)}
}

func newRun(t *testing.T) *run.Run {
	t.Helper()
	dir, err := state.Open(t.TempDir(), "tazlab", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Options: cluster.Options{Cluster: "tazlab"}, Dir: dir, Masker: &secret.Masker{},
		Config: &config.Cluster{Name: "tazlab", Platform: "proxmox"}}
	return &run.Run{Cluster: c, Outputs: run.NewOutputs(c.Masker)}
}

func TestABirthIsEmptyOnlyIfThereIsNoSave(t *testing.T) {
	two := []survivor.Save{save("second", time.Hour), save("first", 25*time.Hour)}
	foreign := save("other", time.Hour)
	foreign.Cluster = "blue/proxmox"
	for name, c := range map[string]struct {
		store   store
		id      string
		from    string // the id of the save; empty: new
		options string
		refused string // part of the error
	}{
		"no save":    {},
		"the newest": {store: store{saves: two}, from: "second", options: "all"},
		"a chosen one": {store: store{saves: two}, id: "first", from: "first",
			options: "exactly first from 1F"},
		"one that is not": {store: store{saves: two}, id: "third", refused: "there is no save third"},
		"the newest lacks": {store: store{saves: two, broken: []string{"second"}},
			refused: "--backup first"},
		"the chosen one does": {store: store{saves: two, broken: []string{"first"}}, id: "first",
			refused: "not archived"},
		"no answer":         {store: store{away: errors.New("no answer")}, refused: "no answer"},
		"another cluster's": {store: store{saves: []survivor.Save{foreign}}, refused: "cluster blue/proxmox"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := choose(t.Context(), newRun(t), Data{Label: "database", Survivor: &c.store}, c.id)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || len(c.store.announced) > 0 {
					t.Errorf("%v, announced %v", err, c.store.announced)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			from := ""
			if b.From != nil {
				from = b.From.ID
			}
			if from != c.from || b.Options != c.options || !strings.HasPrefix(b.Path, "/database/") ||
				len(c.store.announced) != 1 || c.store.announced[0].Path != b.Path {
				t.Errorf("%+v, announced %v", b, c.store.announced)
			}
		})
	}
}

func TestOnlyDataThatCannotHaveChangedNeedNoSave(t *testing.T) {
	last := save("last", time.Minute)
	for name, c := range map[string]struct {
		birth survivor.Birth
		store store
		done  bool
		saved string
		fails bool
	}{
		"in use":    {store: store{inUse: true}},
		"no object": {done: true},
		"no answer": {store: store{away: errors.New("no answer")}, fails: true},
		"frozen since a save": {birth: survivor.Birth{Frozen: true, Saved: &last}, done: true,
			saved: "last"},
		"frozen, and it answers": {birth: survivor.Birth{Frozen: true, Saved: &last},
			store: store{inUse: true}},
		"frozen without a save": {birth: survivor.Birth{Frozen: true}, store: store{inUse: true}},
		"a save that has gone": {birth: survivor.Birth{Frozen: true, Saved: &last},
			store: store{broken: []string{"last"}}, fails: true},
		"a restore that goes on":  {birth: survivor.Birth{From: &last}, done: true, saved: "last"},
		"a restore, not compared": {birth: survivor.Birth{From: &last}, store: store{inUse: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t)
			if err := r.SetBirth("database", &c.birth); err != nil {
				t.Fatal(err)
			}
			s, done, err := finished(t.Context(), r, Data{Label: "database", Survivor: &c.store})
			saved := ""
			if s != nil {
				saved = s.ID
			}
			if (err != nil) != c.fails || !c.fails && (done != c.done || saved != c.saved) {
				t.Errorf("%q, %v, %v", saved, done, err)
			}
		})
	}
}

func TestABirthIsRecordedUntilTheClusterIsGone(t *testing.T) {
	r := newRun(t)
	b := survivor.Born("tazlab/proxmox", "database", (&store{}).Path, time.Now())
	last := save("last", time.Minute)
	b.From = &last
	if err := r.SetBirth("database", &b); err != nil {
		t.Fatal(err)
	}
	if err := r.ProveBirth("database"); err != nil {
		t.Fatal(err)
	}
	kept, err := r.Cluster.Births().Value()
	if err != nil || kept["database"].Path != b.Path || kept["database"].Restored.IsZero() {
		t.Errorf("%+v, %v", kept, err)
	}
	if err := r.ClearBirths(); err != nil {
		t.Fatal(err)
	}
	if kept, err = r.Cluster.Births().Value(); err != nil || len(kept) > 0 {
		t.Errorf("%+v, %v", kept, err)
	}
}

func TestAnIDIsOfTheDataThatHaveIt(t *testing.T) {
	all := []Listed{{Name: "database", Saves: []survivor.Save{save("one", time.Hour)}},
		{Name: "files", Saves: []survivor.Save{save("two", time.Hour)}}}
	for name, c := range map[string]struct {
		label, id string
		listed    []Listed
		theirs    bool
		refused   string
	}{
		"theirs":        {label: "files", id: "two", listed: all, theirs: true},
		"of other data": {label: "files", id: "one", listed: all},
		"of none":       {label: "files", id: "three", listed: all, refused: "there is no save three"},
		"of data unread": {label: "database", id: "two", refused: "the saves of data files are unknown: away",
			listed: []Listed{all[0], {Name: "files", Problem: "away"}}},
	} {
		t.Run(name, func(t *testing.T) {
			theirs, err := has(c.listed, c.label, c.id)
			if theirs != c.theirs || (err != nil) != (c.refused != "") ||
				err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, %v", theirs, err)
			}
		})
	}
}

func TestWhatADestroyHasDeletedInPartIsNotSavedAgain(t *testing.T) {
	last := save("last", time.Minute)
	for frozen, want := range map[bool]bool{true: true, false: false} {
		r := newRun(t)
		if err := r.SetBirth("files", &survivor.Birth{Frozen: true, Saved: &last}); err != nil {
			t.Fatal(err)
		}
		v := &store{inUse: true, frozen: frozen}
		s, done, err := finished(t.Context(), r, Data{Label: "files", Survivor: v})
		if err != nil || done != want || want && s.ID != "last" {
			t.Errorf("frozen %v: %v, %v, %v", frozen, s, done, err)
		}
	}
}
